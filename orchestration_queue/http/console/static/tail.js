// Continues a tail's page and a job's log. Rows are markup of the server, with all data escaped; lines of a log are text.
"use strict";
(() => {
  const MOST_ROWS = 500, MOST_LINES = 1000;

  function tail(body) {
    const button = document.querySelector("[data-pause]");
    const empty = body.closest(".scroll").querySelector(".empty");
    let isPaused = false, held = [], count = 0;

    function put(rows) {
      body.insertAdjacentHTML("afterbegin", rows.slice(-MOST_ROWS).reverse().join("\n"));
      while (body.rows.length > MOST_ROWS) body.deleteRow(-1);
      empty.hidden = body.rows.length > 0;
      dispatchEvent(new Event("oq-rows"));
    }

    function label() {
      button.firstChild.textContent = isPaused ? `Continue${count ? `, ${count} new` : ""} ` : "Pause ";
      button.setAttribute("aria-pressed", isPaused);
    }

    function toggle() {
      isPaused = !isPaused;
      if (!isPaused) { put(held); held = []; count = 0; }
      label();
    }

    const query = body.dataset.query;
    const stream = new EventSource(`${body.dataset.tail}?lastId=${encodeURIComponent(body.dataset.position)}${query && "&"}${query}`);
    const light = document.querySelector(".live");
    stream.onopen = () => light?.classList.add("on");
    stream.onerror = () => light?.classList.remove("on");
    stream.onmessage = (event) => {
      const { rows } = JSON.parse(event.data);
      if (!isPaused) return put(rows);
      held = held.concat(rows).slice(-MOST_ROWS);
      count += rows.length;
      label();
    };
    addEventListener("pagehide", () => stream.close());
    button.hidden = false;
    button.addEventListener("click", toggle);
    label();
  }

  function follow(log) {
    let lines = log.textContent ? log.textContent.split("\n") : [];
    const stream = new EventSource(log.dataset.follow);
    function add(event) {
      const said = JSON.parse(event.data);
      if (said.left_out) lines.push(`… ${said.left_out} lines are left out`);
      lines = lines.concat(said.lines).slice(-MOST_LINES);
      const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
      log.textContent = lines.join("\n");
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    }
    stream.onmessage = add;
    stream.addEventListener("end", (event) => { add(event); stream.close(); });
    addEventListener("pagehide", () => stream.close());
    log.scrollTop = log.scrollHeight;
  }

  addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("tbody[data-tail]").forEach(tail);
    document.querySelectorAll("pre[data-follow]").forEach(follow);
  });
})();
