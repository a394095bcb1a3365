package orchestrationqueue;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connect.service.SparkConnectService$;
import org.sparkproject.connect.grpc.Server;

/**
 * A Spark Connect server whose properties decide whether sessions are isolated. Spark's own main class always isolates
 * them, each with a class loader, and generated code is compiled anew for each class loader.
 */
public final class ConnectServer {
  private ConnectServer() {}

  /** Serve until the process ends. */
  public static void main(String[] arguments) throws InterruptedException {
    SparkSession session = SparkSession.builder().getOrCreate();
    try {
      SparkConnectService$.MODULE$.start(session.sparkContext());
      Server server = SparkConnectService$.MODULE$.server();
      System.err.println("Spark Connect server started at: port:" + server.getPort());
      server.awaitTermination();
    } finally {
      session.stop();
    }
  }
}
