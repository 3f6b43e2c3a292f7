import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, without a process for each file that it makes.
 *
 * <p>Where Hadoop's native library is missing, as it is beside pyspark, it starts chmod for every file,
 * and once more for the file's checksum. What the umask of the job's own process gives is enough here,
 * but for a file that is its owner's alone, as the key that signs control records.
 */
public class QuietLocalFileSystem extends LocalFileSystem {
  public QuietLocalFileSystem() {
    super(new Raw());
  }

  private static class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getGroupAction() == FsAction.NONE && permission.getOtherAction() == FsAction.NONE) {
        String owner = permission.getUserAction().SYMBOL + "------";
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(owner));
      }
    }
  }
}
