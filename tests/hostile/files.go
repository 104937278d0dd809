package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func fileAttacks() list {
	return list{
		{Name: "read", Kind: "reading", Target: "a file or directory", try: read},
		{Name: "search", Kind: "reading", Target: "a directory and the text to find below it", try: search},
		{Name: "homes", Kind: "reading", try: homes},
		{Name: "write", Kind: "writing", Target: "a directory", try: write},
		{Name: "overwrite", Kind: "root", Target: "a file of the kernel, which gets its own content", try: overwrite},
		{Name: "open-for-writing", Kind: "proc", Target: "a file of the kernel", try: openForWriting},
		{Name: "cgroup", Kind: "writing", try: makeCgroup},
		{Name: "kernel-memory", Kind: "proc", try: func(string) verdict { return read("/proc/kcore") }},
		{Name: "kernel-symbols", Kind: "proc", try: kernelSymbols},
		{Name: "kernel-log", Kind: "proc", try: kernelLog},
		{Name: "device", Kind: "writing", try: device},
		{Name: "file-handle", Kind: "reading", try: fileHandle},
	}
}

// read succeeds with one byte of a file or one name of a directory.
func read(path string) verdict {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return blocked("%v", err)
	}
	defer f.Close()
	if names, err := f.Readdirnames(1); err == nil {
		return succeeded("%s holds %q", path, names[0])
	} else if err == io.EOF {
		return blocked("%s is empty", path)
	}
	b := make([]byte, 64)
	n, err := f.Read(b)
	if n == 0 {
		return blocked("reading %s: %v", path, err)
	}
	return succeeded("%s begins %q", path, b[:n])
}

// search reads everything below a directory that is small enough to be a secret.
func search(target string) verdict {
	dir, needle, ok := strings.Cut(target, " ")
	if !ok || needle == "" {
		return impossible(fmt.Errorf("target %q is not a directory and a text", target))
	}
	found, files := "", 0
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be entered cannot be searched
		}
		if d.IsDir() && (path == "/proc" || path == "/sys" || path == "/usr") {
			return filepath.SkipDir
		}
		if info, err := d.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil {
			files++
		}
		if bytes.Contains(b, []byte(needle)) {
			found = path
			return filepath.SkipAll
		}
		return nil
	})
	if found != "" {
		return succeeded("found in %s", found)
	}
	return blocked("not in any of %d files", files)
}

// homes looks for anybody else's home.
func homes(string) verdict {
	own := os.Getenv("HOME")
	for _, dir := range []string{"/home", "/root"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if path := filepath.Join(dir, e.Name()); path != own {
				return succeeded("%s is there", path)
			}
		}
	}
	return blocked("no home but %s", own)
}

func write(dir string) verdict {
	path := filepath.Join(dir, fmt.Sprintf(".pfar-hostile-%d", os.Getpid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return blocked("%v", err)
	}
	f.Close()
	os.Remove(path)
	return succeeded("made %s", path)
}

func overwrite(path string) verdict {
	b, err := os.ReadFile(path)
	if err != nil {
		return blocked("%v", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return blocked("%v", err)
	}
	defer f.Close()
	_, err = f.Write(b)
	return outcome(err)
}

func openForWriting(path string) verdict {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		f.Close()
	}
	return outcome(err)
}

// makeCgroup tries every hierarchy, of either version.
func makeCgroup(string) verdict {
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*")
	last := error(fs.ErrNotExist)
	for _, dir := range append(dirs, "/sys/fs/cgroup") {
		path := filepath.Join(dir, fmt.Sprintf("pfar-hostile-%d", os.Getpid()))
		if last = os.Mkdir(path, 0o700); last == nil {
			os.Remove(path)
			return succeeded("made %s", path)
		}
	}
	return blocked("%v", last)
}

// kernelSymbols succeeds with an address that is not masked (kernel.kptr_restrict, proc(5)).
func kernelSymbols(string) verdict {
	b, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return blocked("%v", err)
	}
	for line := range strings.Lines(string(b)) {
		if address, _, _ := strings.Cut(line, " "); strings.Trim(address, "0") != "" {
			return succeeded("%s", strings.TrimSpace(line))
		}
	}
	return blocked("every address is masked")
}

func kernelLog(string) verdict {
	if f, err := os.Open("/dev/kmsg"); err == nil {
		f.Close()
		return succeeded("/dev/kmsg can be read")
	}
	if f, err := os.Open("/proc/kmsg"); err == nil {
		f.Close()
		return succeeded("/proc/kmsg can be read")
	}
	_, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err == nil { // the size is free for all: what counts is the text
		_, err = unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 256))
	}
	return outcome(err)
}

// device makes /dev/mem where files may be made.
func device(string) verdict {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("pfar-hostile-mem-%d", os.Getpid()))
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))); err != nil {
		return blocked("%v", err)
	}
	os.Remove(path)
	return succeeded("made %s", path)
}

// fileHandle opens / past every path check (the "shocker" of old containers).
func fileHandle(string) verdict {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
	if err != nil {
		return reached(err)
	}
	dir, err := unix.Open("/", unix.O_RDONLY, 0)
	if err != nil {
		return impossible(err)
	}
	fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY)
	if err == nil {
		unix.Close(fd)
	}
	return reached(err)
}

// plant fills the home directory with links to a place on the host, for a next start that makes or mounts something
// below it. What was there under these names goes.
func plant(arguments json.RawMessage) (string, error) {
	var a struct {
		Target string `json:"target"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return "", err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	names := []string{".cache", ".config", ".local", ".npm", ".ssh", "cache", "data", "state", "tmp", ".pfar"}
	entries, err := os.ReadDir(home)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	planted := 0
	for _, name := range names {
		path := filepath.Join(home, name)
		os.RemoveAll(path)
		if os.Symlink(a.Target, path) == nil {
			planted++
		}
	}
	return fmt.Sprint(planted), nil
}
