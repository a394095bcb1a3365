package orchestrationqueue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.spark.SparkConf;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import scala.collection.Iterator;
import scala.collection.Seq;

/**
 * Tells whoever submitted an application how far it is, without a change to the application.
 *
 * <p>Spark creates it for {@code spark.extraListeners}, and calls it in the thread of a queue that it shares with other
 * listeners and bounds by {@code spark.scheduler.listenerbus.eventqueue.capacity}. So here events are only counted;
 * another thread writes now and then what has changed. Whatever goes wrong costs progress, and nothing else: the
 * application neither fails nor says anything of it.
 *
 * <p>On a machine of a cluster, where nobody watches over the driver, it also sees to it that the driver's Python ends
 * with it.
 */
public final class ProgressListener extends SparkListener {
  private static final String TARGET = "spark.orchestration_queue.progress";

  private final Tally tally = new Tally();
  private final Sink sink;
  private String written = "";
  private volatile boolean isOff;

  /**
   * As Spark creates listeners.
   *
   * @param conf the application's properties; one of them says where to write
   */
  public ProgressListener(SparkConf conf) {
    sink = open(conf);
    isOff = sink == null;
    if (!isOff) {
      Thread writer = new Thread(this::keepWriting, "orchestration-queue-progress");
      writer.setDaemon(true);
      writer.start();
    }
    if (sink instanceof Sink.Among) {
      // Spark ends a killed driver's Java, and nobody its Python, which may compute on for hours.
      Runtime.getRuntime().addShutdownHook(new Thread(ProgressListener::endChildren));
    }
  }

  @Override
  public void onApplicationStart(SparkListenerApplicationStart event) {
    count(() -> tally.applicationStarted(event.appId().isDefined() ? event.appId().get() : ""));
  }

  @Override
  public void onJobStart(SparkListenerJobStart event) {
    count(
        () -> {
          tally.jobStarted(event.jobId(), queryOf(event));
          Iterator<StageInfo> stages = event.stageInfos().iterator();
          while (stages.hasNext()) {
            StageInfo stage = stages.next();
            tally.stagePlanned(event.jobId(), stage.stageId(), stage.numTasks(), numbers(stage.parentIds()));
          }
        });
  }

  @Override
  public void onStageSubmitted(SparkListenerStageSubmitted event) {
    count(() -> tally.stageStarted(event.stageInfo().stageId()));
  }

  @Override
  public void onStageCompleted(SparkListenerStageCompleted event) {
    count(tally::stageEnded);
  }

  @Override
  public void onTaskStart(SparkListenerTaskStart event) {
    count(() -> tally.taskStarted(event.stageId()));
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    count(
        () -> {
          boolean isSuccess = event.taskInfo() != null && event.taskInfo().successful();
          TaskMetrics metrics = event.taskMetrics();
          if (isSuccess && metrics != null) {
            tally.moved(
                event.stageId(),
                metrics.inputMetrics().recordsRead(),
                metrics.inputMetrics().bytesRead(),
                metrics.outputMetrics().recordsWritten(),
                metrics.outputMetrics().bytesWritten());
          }
          tally.taskEnded(event.stageId(), isSuccess);
        });
  }

  @Override
  public void onJobEnd(SparkListenerJobEnd event) {
    count(() -> tally.jobEnded(event.jobId()));
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    count(() -> write(true));
  }

  private static void endChildren() {
    ProcessHandle.current().children().forEach(ProcessHandle::destroy);
  }

  private static Sink open(SparkConf conf) {
    try {
      String target = conf.get(TARGET, "");
      return target.isEmpty() ? null : Sink.of(target);
    } catch (RuntimeException | LinkageError error) {
      return null;
    }
  }

  private void count(Runnable step) {
    if (!isOff) {
      try {
        step.run();
      } catch (RuntimeException | LinkageError error) { // another Spark than we were made for
        isOff = true;
      }
    }
  }

  private void keepWriting() {
    try {
      while (!isOff) {
        Thread.sleep(sink.pause());
        count(() -> write(false));
      }
    } catch (InterruptedException error) {
      // Whoever wants this thread to end, has its way.
    }
  }

  private synchronized void write(boolean isOver) {
    String line = tally.line(isOver);
    if (isOff || line.equals(written)) {
      return;
    }
    try {
      sink.write(line);
      written = line;
    } catch (IOException error) {
      // A full disk may have room again by the next time.
    }
    isOff = isOver;
  }

  /** Jobs of one SQL query, and of the queries within it, belong together; any other job stands for itself. */
  private static String queryOf(SparkListenerJobStart event) {
    Properties about = event.properties();
    if (about != null) {
      String root = about.getProperty("spark.sql.execution.root.id", about.getProperty("spark.sql.execution.id"));
      if (root != null) {
        return "query " + root;
      }
    }
    return "job " + event.jobId();
  }

  /** Scala's numbers as Java has them. */
  private static List<Integer> numbers(Seq<Object> numbers) {
    List<Integer> found = new ArrayList<>();
    Iterator<Object> each = numbers.iterator();
    while (each.hasNext()) {
      found.add((Integer) each.next());
    }
    return found;
  }
}
