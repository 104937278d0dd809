package units

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// passedCredential begins the variables with the descriptors of credentials (PassCredentials).
const passedCredential = "PFAR_CREDENTIAL_"

// Credential reads a credential of this unit (systemd.exec(5), LoadCredential=). An empty one is an error: a
// credential server that hangs up yields an empty file, and the unit starts all the same.
func Credential(name string) ([]byte, error) {
	f, err := openCredential(name)
	if err != nil {
		return nil, fmt.Errorf("reading credential %q: %w", name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading credential %q: %w", name, err)
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("reading credential %q: it is empty", name)
	}
	return b, nil
}

func openCredential(name string) (*os.File, error) {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return nil, fmt.Errorf("not a file name")
	}
	if text, ok := os.LookupEnv(passedCredential + name); ok {
		fd, err := strconv.Atoi(text)
		if err != nil || fd < 3 {
			return nil, fmt.Errorf("%q is not a descriptor", text)
		}
		os.Unsetenv(passedCredential + name)
		unix.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), name), nil
	}
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return nil, fmt.Errorf("CREDENTIALS_DIRECTORY is not set")
	}
	return os.Open(filepath.Join(dir, name))
}

// PassCredentials opens the credentials of this unit, but for CredentialUser, for what this process is about to execute
// as another user, who could not open them. It returns the environment by which Credential finds them there.
func PassCredentials() (env []string, err error) {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("opening credentials: %w", err)
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CREDENTIALS_DIRECTORY=") && !strings.HasPrefix(v, passedCredential) {
			env = append(env, v)
		}
	}
	for _, f := range files {
		if f.Name() == CredentialUser {
			continue
		}
		fd, err := unix.Open(filepath.Join(dir, f.Name()), unix.O_RDONLY|unix.O_NOFOLLOW, 0) // to stay open over exec
		if err != nil {
			return nil, fmt.Errorf("opening credential %q: %w", f.Name(), err)
		}
		env = append(env, passedCredential+f.Name()+"="+strconv.Itoa(fd))
	}
	return env, nil
}
