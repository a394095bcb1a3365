package orchestrationqueue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** Where an application's progress goes: a file that always holds the newest line, or the standard error. */
interface Sink {
  /** What begins a line among others. */
  String MARK = "orchestration_queue.progress ";

  void write(String line) throws IOException;

  /** Milliseconds between two lines. */
  long pause();

  static Sink of(String target) {
    return target.equals("stderr") ? new Among() : new Whole(Path.of(target));
  }

  /** A file. Whoever reads it finds a whole line, and one that nobody reads does not grow. */
  final class Whole implements Sink {
    private final Path file;
    private final Path draft;

    Whole(Path file) {
      this.file = file;
      this.draft = file.resolveSibling(file.getFileName() + ".new");
    }

    @Override
    public void write(String line) throws IOException {
      Files.write(draft, (line + "\n").getBytes(StandardCharsets.UTF_8));
      Files.move(draft, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    }

    @Override
    public long pause() {
      return 500;
    }
  }

  /** Lines among those of a driver's log, for want of a file that its submitter could see; so they are few. */
  final class Among implements Sink {
    @Override
    public void write(String line) {
      System.err.println(MARK + line);
    }

    @Override
    public long pause() {
      return 2_000;
    }
  }
}
