package main

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// browser opens a link that lets somebody in, on the desktop of this user. No argument and no variable has the link:
// every user of the machine may read arguments. A file has it that only this user may read.
type browser struct {
	program []string // what opens a file: xdg-open or gio
	runtime string   // the user's directory for files of this login (XDG_RUNTIME_DIR)
}

// findBrowser finds what opens a link for the person before this terminal; nil: nothing does, and the person opens the
// link.
func findBrowser(c *pfar) *browser {
	runtime := c.getenv("XDG_RUNTIME_DIR")
	switch {
	case c.getenv("DISPLAY") == "" && c.getenv("WAYLAND_DISPLAY") == "", // no desktop
		c.getenv("SSH_CONNECTION") != "",                              // the person is at another machine
		!isTerminal(c.stdout), c.uid == 0, c.getenv("SUDO_UID") != "", // it is run for somebody else
		!private(runtime, c.uid):
		return nil
	}
	for _, program := range [][]string{{"xdg-open"}, {"gio", "open"}} {
		if path, err := exec.LookPath(program[0]); err == nil {
			return &browser{append([]string{path}, program[1:]...), runtime}
		}
	}
	return nil
}

// private reports whether a path is a directory of the user's that is closed to others.
func private(path string, uid int) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == uid
}

// open has the browser open a link. close takes the file with the link away. failed gets an error if no browser could
// be started.
func (b *browser) open(link string) (failed <-chan error, close func(), err error) {
	f, err := writeLink(b.runtime, link)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(b.program[0], append(b.program[1:], f.path)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C ends this program, and not a browser that it started
	if err := cmd.Start(); err != nil {
		f.remove()
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		if err := cmd.Wait(); err != nil {
			ended <- fmt.Errorf("%s: %w", filepath.Base(b.program[0]), err)
		}
	}()
	return ended, f.remove, nil
}

// linkFile is a file that leads to a link. Its directory is locked (flock(2)) as long as this process lives.
type linkFile struct {
	dir  *os.File
	path string
}

// linkPage leads to a link at once.
var linkPage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={{.}}">
<title>pfar</title>
<p><a href="{{.}}">Go on to your pages of pfar</a></p>
</html>
`))

// linkDirs is what the directories of these files are called, with random digits in place of *.
const linkDirs = "pfar-console-*"

// writeLink writes the file of a link, mode 0600, in a new directory of mode 0700. It removes what processes left that
// were killed.
func writeLink(runtime, link string) (*linkFile, error) {
	removeLeftLinks(runtime)
	path, err := os.MkdirTemp(runtime, linkDirs)
	if err != nil {
		return nil, err
	}
	f := &linkFile{path: filepath.Join(path, "open.html")}
	f.dir, err = os.Open(path)
	if err == nil {
		err = unix.Flock(int(f.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = f.write(link)
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

func (f *linkFile) write(link string) error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(linkPage.Execute(file, link), file.Close())
}

// remove removes the file and its directory.
func (f *linkFile) remove() {
	_ = os.RemoveAll(filepath.Dir(f.path)) // the next one tries again, and the link is void by then
	if f.dir != nil {
		_ = f.dir.Close()
	}
}

// removeLeftLinks removes directories that no process holds locked.
func removeLeftLinks(runtime string) {
	list, _ := filepath.Glob(filepath.Join(runtime, linkDirs))
	for _, path := range list {
		dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		_ = dir.Close()
	}
}

// openInBrowser shows a link and has the browser open it. It returns when somebody has come in with the link, when that
// is void, or with ctx: then the file with the link is gone.
func (c consoleVerb) openInBrowser(ctx context.Context, b *browser) error {
	var failed <-chan error
	remove := func() {}
	defer func() { remove() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	shown := false
	entered, err := c.control().Console(ctx, func(link string) (err error) {
		c.show(link)
		shown = true
		if failed, remove, err = b.open(link); err != nil {
			remove = func() {}
			return errNotOpened{err}
		}
		fmt.Fprintln(c.stderr, "Opening it in your browser. This command ends when somebody has used the link, or with "+
			"Ctrl-C.")
		go func() {
			select {
			case err := <-failed:
				cancel(errNotOpened{err})
			case <-ctx.Done():
			}
		}()
		return nil
	})
	if cause := context.Cause(ctx); cause != nil && errors.As(cause, new(errNotOpened)) {
		err = cause
	}
	switch {
	case errors.As(err, new(errNotOpened)):
		c.hintAt("no browser could be started (" + err.Error() + "): open the link yourself")
		return nil
	case shown && ctx.Err() != nil: // Ctrl-C: the link is there
		return nil
	case err != nil:
		return err
	case entered:
		fmt.Fprintln(c.stderr, "The link has been used.")
	default:
		fmt.Fprintln(c.stderr, "Nobody used the link, and it does not work any more. Run pfar console for another one.")
	}
	return nil
}

// errNotOpened is the error of a browser that could not be started.
type errNotOpened struct{ error }

func (e errNotOpened) Unwrap() error { return e.error }
