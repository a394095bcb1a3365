package orchestrationqueue;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Counts how far an application is. One thread tells it what happens, another reads; each call is short.
 *
 * <p>A query is what belongs to one action: with adaptive execution that is a row of Spark jobs.
 */
final class Tally {
  private static final int MOST_QUERIES = 1_000;

  /** What belongs to one action of the application. */
  private static final class Query {
    final int number;
    int total;
    int completed;
    int running;
    long read;

    Query(int number) {
      this.number = number;
    }
  }

  /** A stage of a running job. */
  private static final class Stage {
    final Query query;
    final int job;
    final Collection<Integer> parents;
    int tasks;
    int completed;
    int running;
    boolean isSubmitted;

    Stage(Query query, int job, int tasks, Collection<Integer> parents) {
      this.query = query;
      this.job = job;
      this.tasks = tasks;
      this.parents = parents;
    }
  }

  /** The queries that were seen last: an application may live for months. */
  private final Map<String, Query> queries =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Query> eldest) {
          return size() > MOST_QUERIES;
        }
      };

  private final Map<Integer, Stage> stages = new HashMap<>();
  private final Map<Integer, Query> jobs = new LinkedHashMap<>();
  private String application = "";
  private Query shown = new Query(0);
  private int numbered;
  private long jobsDone;
  private long stagesDone;
  private long tasksDone;
  private long inputRows;
  private long inputBytes;
  private long outputRows;
  private long outputBytes;

  synchronized void applicationStarted(String id) {
    application = id;
  }

  synchronized void jobStarted(int job, String key) {
    Query query = queries.computeIfAbsent(key, unseen -> new Query(++numbered));
    jobs.put(job, query);
    shown = query;
  }

  /** A stage of a job that has started. It will run, or be skipped because its output is there already. */
  synchronized void stagePlanned(int job, int stage, int tasks, Collection<Integer> parents) {
    Query query = jobs.get(job);
    if (query != null) {
      forget(stages.put(stage, new Stage(query, job, tasks, parents)));
      query.total += tasks;
    }
  }

  /** A stage begins, so its parents are done; those that never began are skipped. */
  synchronized void stageStarted(int stage) {
    Stage known = stages.get(stage);
    if (known != null) {
      known.isSubmitted = true;
      skip(known.parents);
    }
  }

  synchronized void stageEnded() {
    stagesDone++;
  }

  synchronized void taskStarted(int stage) {
    Stage known = stages.get(stage);
    if (known != null) {
      known.running++;
      known.query.running++;
    }
  }

  synchronized void taskEnded(int stage, boolean isSuccess) {
    Stage known = stages.get(stage);
    tasksDone += isSuccess ? 1 : 0;
    if (known == null) {
      return;
    }
    if (known.running > 0) {
      known.running--;
      known.query.running--;
    }
    if (isSuccess && known.completed < known.tasks) { // a stage that is tried again repeats some
      known.completed++;
      known.query.completed++;
    }
  }

  /** What a task that succeeded has read and written. */
  synchronized void moved(int stage, long rowsIn, long bytesIn, long rowsOut, long bytesOut) {
    inputRows += rowsIn;
    inputBytes += bytesIn;
    outputRows += rowsOut;
    outputBytes += bytesOut;
    Stage known = stages.get(stage);
    if (known != null) {
      known.query.read += bytesIn;
    }
  }

  synchronized void jobEnded(int job) {
    jobsDone++;
    List<Integer> over = new ArrayList<>();
    stages.forEach((id, stage) -> { if (stage.job == job) over.add(id); });
    over.forEach(id -> forget(stages.remove(id)));
    jobs.remove(job);
    for (Query open : jobs.values()) { // the newest of those that run, if any does
      shown = open;
    }
  }

  /** All of it, as one line of JSON. */
  synchronized String line(boolean isOver) {
    return "{\"application\":\"" + application.replaceAll("[^\\w.:-]", "_") + '"'
        + ",\"over\":" + isOver
        + ",\"query\":" + shown.number
        + ",\"total\":" + shown.total
        + ",\"completed\":" + shown.completed
        + ",\"running\":" + shown.running
        + ",\"read\":" + shown.read
        + ",\"jobs\":" + jobsDone
        + ",\"stages\":" + stagesDone
        + ",\"tasks\":" + tasksDone
        + ",\"input_rows\":" + inputRows
        + ",\"input_bytes\":" + inputBytes
        + ",\"output_rows\":" + outputRows
        + ",\"output_bytes\":" + outputBytes
        + '}';
  }

  private void skip(Collection<Integer> skipped) {
    for (int id : skipped) {
      Stage stage = stages.get(id);
      if (stage != null && !stage.isSubmitted && stage.tasks > 0) {
        stage.query.total -= stage.tasks;
        stage.tasks = 0;
        skip(stage.parents);
      }
    }
  }

  /** A stage will do nothing any more: what it has not done, is not to be done. */
  private void forget(Stage stage) {
    if (stage != null) {
      stage.query.total -= stage.tasks - stage.completed;
      stage.query.running -= stage.running;
    }
  }
}
