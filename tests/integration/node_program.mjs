// A client of the wire in Node, without packages: `node node_program.mjs SOCKET PREFIX work|signal|events ARGUMENTS...`.
// `work` plays glide-mq's Worker for one job, `signal` its Queue.signal(), `events` its QueueEvents. Prints JSON lines.
import { createConnection } from "node:net";

const [socketPath, base, verb, ...given] = process.argv.slice(2);
const key = (name) => `${base}:${name}`;

class Client {
  constructor(path) {
    this.waiting = [];
    this.received = Buffer.alloc(0);
    this.socket = createConnection(path);
    this.socket.on("data", (chunk) => {
      this.received = Buffer.concat([this.received, chunk]);
      for (let found; (found = this.parse(0)); this.received = this.received.subarray(found.end)) {
        this.waiting.shift()(found.value);
      }
    });
  }

  send(...words) {
    const parts = words.map((word) => Buffer.from(String(word)));
    this.socket.write(Buffer.concat([
      Buffer.from(`*${parts.length}\r\n`),
      ...parts.flatMap((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from("\r\n")]),
    ]));
    return new Promise((resolve, reject) => {
      this.waiting.push((value) => (value instanceof Error ? reject(value) : resolve(value)));
    });
  }

  call(name, keys, ...args) {
    return this.send("FCALL", `glidemq_${name}`, keys.length, ...keys, ...args);
  }

  // One RESP2 reply from an offset; null if it has not arrived as a whole.
  parse(start) {
    const stop = this.received.indexOf("\r\n", start);
    if (stop < 0) return null;
    const type = String.fromCharCode(this.received[start] ?? 0);
    const text = this.received.toString("utf8", start + 1, stop);
    let end = stop + 2;
    if (type === "+") return { value: text, end };
    if (type === "-") return { value: new Error(text), end };
    if (type === ":") return { value: Number(text), end };
    if (Number(text) < 0) return { value: null, end };
    if (type === "$") {
      const last = end + Number(text);
      return this.received.length < last + 2 ? null : { value: this.received.toString("utf8", end, last), end: last + 2 };
    }
    const items = [];
    while (items.length < Number(text)) {
      const item = this.parse(end);
      if (!item) return null;
      items.push(item.value);
      end = item.end;
    }
    return { value: items, end };
  }
}

const record = (flat) => Object.fromEntries(flat.flatMap((word, at) => (at % 2 ? [] : [[word, flat[at + 1]]])));
const print = (value) => console.log(JSON.stringify(value));

// Take the next job of the stream, print it as its processor sees it, and complete it with a result.
async function work(client, result) {
  const consumer = `worker-${Date.now()}-00000001`;
  await client.send("XGROUP", "CREATE", key("stream"), "workers", "0", "MKSTREAM").catch((error) => {
    if (!error.message.startsWith("BUSYGROUP")) throw error;
  });
  let read = null;
  while (!read) {
    await client.call("promote", [key("scheduled"), key("stream"), key("events")], Date.now());
    read = await client.send(
      "XREADGROUP", "GROUP", "workers", consumer, "COUNT", 1, "BLOCK", 100, "STREAMS", key("stream"), ">",
    );
  }
  const [entry, words] = read[0][1][0];
  const id = record(words).jobId;
  const job = key(`job:${id}`);
  const fields = record(await client.call("moveToActive", [job, key("stream")], Date.now(), entry, "workers", id));
  await client.send("HSET", job, "lastActive", Date.now());
  const { name, data, opts, attemptsMade, parentId, parentQueue, signals } = fields;
  print({
    id, name, data: JSON.parse(data), opts: JSON.parse(opts), attemptsMade: Number(attemptsMade ?? 0),
    signals: JSON.parse(signals ?? "[]"),
  });
  const parent = parentQueue && base.replace(/{.*}/, `{${parentQueue}}`);
  const parentKeys = parent ? ["deps", "job"].map((kind) => `${parent}:${kind}:${parentId}`) : [];
  const rest = parent ? [...parentKeys, `${parent}:stream`, `${parent}:events`] : [];
  const ended = await client.call(
    "completeAndFetchNext",
    [...["stream", "completed", "events"].map(key), job, key("metrics:completed"), ...rest],
    id, entry, result, Date.now(), "workers", consumer, "0", 0, 0,
    parent ? key(id) : "", parentId ?? "", "__", "", "__", "0", fields.processedOn, "0", "0", "0",
  );
  print(ended[0]);
}

async function signal(client, id, name, data) {
  const keys = [key(`job:${id}`), ...["stream", "events", "suspended"].map(key), key(`signals:${id}`)];
  print((await client.call("signal", keys, id, name, data, Date.now())) === "ok");
}

// Print the events from the first one, each under its name, until a job has completed.
async function events(client, id) {
  let last = "0";
  for (;;) {
    const read = await client.send("XREAD", "BLOCK", 5000, "COUNT", 100, "STREAMS", key("events"), last);
    for (const [entry, words] of read?.[0][1] ?? []) {
      last = entry;
      const { event, ...fields } = record(words);
      print({ event, ...fields });
      if (event === "completed" && fields.jobId === id) return;
    }
  }
}

const client = new Client(socketPath);
await { work, signal, events }[verb](client, ...given);
client.socket.end();
