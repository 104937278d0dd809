package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/sandbox"
)

// Roles of this program beside the benchmark itself, each a process of its own so that it can be measured alone.
const (
	floorRole  = "floor"  // ARGV...: the least gateway, in front of one program; after confined, in a sandbox
	staticRole = "static" // FILE: answers everything with the file's bytes

	confined = "-confined"
)

// floor is the thinnest HTTP-to-stdio gateway that Go makes of net/http: one child, one id for another, and nothing
// looked at but where the id stands. What a real gateway costs is what it costs above this.
type floor struct {
	in *os.File

	mu      sync.Mutex // guards what follows, and the order of writes
	last    int64
	waiting map[int64]chan []byte
	line    []byte
}

// runFloor serves a program until this process is killed, and says first where.
func runFloor(argv []string) error {
	c, err := floorChild(argv)
	if err != nil {
		return err
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return err
	}
	c.Stdin, c.Stdout = childIn, childOut
	if err := c.Start(); err != nil {
		return err
	}
	childIn.Close()
	childOut.Close()
	f := &floor{in: in, waiting: make(map[int64]chan []byte)}
	go func() {
		fmt.Fprintln(os.Stderr, "floor: its program ended:", f.read(out))
		os.Exit(1)
	}()
	return serveHere(f)
}

// floorChild is the program, if asked for in the namespaces and behind the system call filter of a server of pfar's: a
// sandbox slows a busy server by some 8 %, which is not the gateway's doing.
func floorChild(argv []string) (*exec.Cmd, error) {
	if len(argv) == 0 {
		return nil, errors.New("want a program to stand in front of")
	}
	c := exec.Command(argv[0], argv[1:]...)
	if argv[0] == confined {
		filter, err := sandbox.Seccomp(runtime.GOARCH)
		if err != nil {
			return nil, err
		}
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(filter); err != nil { // less than a pipe holds
			return nil, err
		}
		w.Close()
		c = exec.Command("bwrap", append([]string{"--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/",
			"--proc", "/proc", "--dev", "/dev", "--seccomp", "3", "--"}, argv[1:]...)...)
		c.ExtraFiles = []*os.File{r}
	}
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return c, nil
}

// serveHere serves on a free port and prints its address.
func serveHere(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, h)
}

// read hands each line to whoever waits for the id in it.
func (f *floor) read(out io.Reader) error {
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		start, end := idOf(line)
		id, err := strconv.ParseInt(string(line[start:end]), 10, 64)
		if err != nil {
			continue // a notification
		}
		f.mu.Lock()
		w := f.waiting[id]
		delete(f.waiting, id)
		f.mu.Unlock()
		if w != nil {
			w <- line
		}
	}
}

// send passes a message on under an id of the floor's own, and returns where its answer will come.
func (f *floor) send(body []byte, start, end int) (chan []byte, error) {
	w := make(chan []byte, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	f.waiting[f.last] = w
	f.line = append(f.line[:0], body[:start]...)
	f.line = strconv.AppendInt(f.line, f.last, 10)
	f.line = append(append(f.line, body[end:]...), '\n')
	_, err := f.in.Write(f.line)
	return w, err
}

func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, max(0, r.ContentLength))
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return
	}
	start, end := idOf(body)
	answered, err := f.send(body, start, end)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	line := <-answered
	line = line[:len(line)-1]
	from, to := idOf(line)
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(line) - (to - from) + (end - start))}
	_, _ = w.Write(line[:from])
	_, _ = w.Write(body[start:end])
	_, _ = w.Write(line[to:])
}

// idOf finds the value of the member "id" of a JSON object, 0 and 0 if it has none. It stops there: of a long message
// nothing behind the id is read.
func idOf(b []byte) (start, end int) {
	depth, key := 0, false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
			key = b[i] == '{'
		case '}', ']':
			depth--
		case ',':
			key = true
		case ':':
			key = false
		case '"':
			text := i + 1
			i = closingQuote(b, text)
			if key && depth == 1 && string(b[text:min(i, len(b))]) == "id" {
				return value(b, i+1)
			}
		}
	}
	return 0, 0
}

// closingQuote returns where the string ends whose text begins at i.
func closingQuote(b []byte, i int) int {
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
		i++
	}
}

// value returns where the scalar begins and ends that follows the colon at or behind i.
func value(b []byte, i int) (start, end int) {
	for i < len(b) && (b[i] == ':' || b[i] == ' ') {
		i++
	}
	start = i
	if start < len(b) && b[start] == '"' {
		return start, min(closingQuote(b, start+1)+1, len(b))
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ' ' {
		i++
	}
	return start, i
}

// runStatic answers every request with a file's bytes, as fast as net/http writes them.
func runStatic(args []string) error {
	if len(args) != 1 {
		return errors.New("want a file")
	}
	ready, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	length := strconv.Itoa(len(ready))
	return serveHere(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		h["Content-Type"] = []string{"application/json"}
		h["Content-Length"] = []string{length}
		_, _ = w.Write(ready)
	}))
}

// role is a process of this program that plays one.
type role struct {
	cmd     *exec.Cmd
	address string
}

// play starts a role and returns when it serves.
func play(ctx context.Context, name string, args ...string) (*role, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self, append([]string{name}, args...)...)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	r := &role{cmd: c}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		r.end()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	r.address = address[:len(address)-1]
	return r, nil
}

func (r *role) end() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}
