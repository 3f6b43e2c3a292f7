import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * What an object store does to a checkpoint, on a local disk: copying://store/folder.
 *
 * <p>To rename is to copy and to delete, and takes the place of what is there, whoever wrote it. A copy
 * appears whole. There are no permissions and no checksum files. Each request takes
 * fs.copying.latency.ms.
 */
public class CopyingFileSystem extends RawLocalFileSystem {
  private static final URI ROOT = URI.create("copying://store/");
  private long latencyMs;

  @Override
  public URI getUri() {
    return ROOT;
  }

  @Override
  public String getScheme() {
    return "copying";
  }

  @Override
  public void initialize(URI uri, Configuration conf) throws IOException {
    super.initialize(ROOT, conf);
    latencyMs = conf.getLong("fs.copying.latency.ms", 0);
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    request(); // whether it is there
    java.io.File source = pathToFile(from);
    if (!source.isFile()) {
      throw new FileNotFoundException(from.toString());
    }
    java.io.File beside = new java.io.File(source.getPath() + ".copy");
    Files.copy(source.toPath(), beside.toPath(), StandardCopyOption.REPLACE_EXISTING);
    request();
    Files.move(beside.toPath(), pathToFile(to).toPath(), StandardCopyOption.REPLACE_EXISTING);
    request();
    return source.delete();
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    request();
    return super.open(path, bufferSize);
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    request();
    return super.create(path, overwrite, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    return create(path, overwrite, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    return create(
        path, flags.contains(CreateFlag.OVERWRITE), bufferSize, replication, blockSize, progress);
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    request();
    return super.getFileStatus(path);
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    request();
    return super.listStatus(path);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    request();
    return super.delete(path, recursive);
  }

  @Override
  public void setPermission(Path path, FsPermission permission) {}

  private void request() throws IOException {
    if (latencyMs > 0) {
      try {
        Thread.sleep(latencyMs);
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        throw new java.io.InterruptedIOException();
      }
    }
  }
}
