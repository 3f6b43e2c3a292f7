import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, without a process for each file that it makes.
 *
 * <p>Where Hadoop's native library is missing, as it is beside pyspark, it starts chmod for every file,
 * and once more for the file's checksum. What the umask of the job's own process gives is enough here.
 */
public class QuietLocalFileSystem extends LocalFileSystem {
  public QuietLocalFileSystem() {
    super(new Raw());
  }

  private static class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) {}
  }
}
