package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// bridge is a client on stdio: a "pfar connect", which is killed now and then and started again.
type bridge struct {
	s    *soak
	n    int
	last int64 // id; those of one process after the other's differ

	mu      sync.Mutex
	cmd     *exec.Cmd
	killed  bool // by us
	waiting map[int64]chan message
	ended   chan struct{} // the present process's output has
}

func (s *soak) newBridge(n int) *bridge { return &bridge{s: s, n: n} }

// live makes calls until stop is closed, by one process after the other.
func (b *bridge) live(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		in, err := b.start()
		if err != nil {
			b.s.tally.violation("bridge %d: %v", b.n, err)
			return
		}
		b.talk(in, stop)
		in.Close()
		b.reap()
	}
}

func (b *bridge) start() (io.WriteCloser, error) {
	c := exec.Command(filepath.Join(b.s.pfar.bin, "pfar"), "connect")
	c.Env = b.s.pfar.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := c.Start(); err != nil {
		return nil, err
	}
	b.cmd, b.killed, b.waiting, b.ended = c, false, map[int64]chan message{}, make(chan struct{})
	go b.read(out, b.waiting, b.ended)
	return in, nil
}

// read hands answers to those who wait. One that nobody waits for has been given before, or is somebody else's.
func (b *bridge) read(out io.Reader, waiting map[int64]chan message, ended chan struct{}) {
	defer close(ended)
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			b.s.tally.violation("bridge %d writes %.200q: %v", b.n, line, err)
			continue
		}
		if m.Method != "" && m.ID == nil {
			continue
		}
		var id int64
		err = json.Unmarshal(m.ID, &id)
		b.mu.Lock()
		w := waiting[id]
		delete(waiting, id)
		b.mu.Unlock()
		if err != nil || w == nil {
			b.s.tally.violation("bridge %d: an answer that nobody waits for, or a second one: %.300q", b.n, line)
			continue
		}
		w <- m
	}
}

// talk makes calls, some side by side, until the process ends or stop is closed.
func (b *bridge) talk(in io.Writer, stop <-chan struct{}) {
	if !b.call(in, request{server: b.s.pfar.servers[0], began: time.Now()}, "initialize") {
		return
	}
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for {
		select {
		case <-stop:
			return
		case <-b.ended:
			return
		case <-time.After(b.s.between(0, 10*time.Millisecond)):
		}
		var beside sync.WaitGroup
		for range 1 + b.s.roll(4) {
			r := b.s.invent()
			r.own, r.hangUp, r.cancel = false, 0, 0
			beside.Go(func() { b.call(in, r, "") })
		}
		beside.Wait()
	}
}

// call makes one call and reports whether there may be another one.
func (b *bridge) call(in io.Writer, r request, method string) bool {
	w := make(chan message, 1)
	b.mu.Lock()
	b.last++
	r.id, r.began = b.last, time.Now()
	b.waiting[r.id] = w
	ended := b.ended
	r.text = fmt.Sprintf("<%s %d %d %s>", b.s.pfar.marker, b.n, r.id, r.text)
	body, _ := r.body(older)
	if method == "initialize" {
		body = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}`, r.id, older)
	}
	_, err := in.Write(append(body, '\n')) // a line is written whole while b.mu is held
	b.mu.Unlock()
	timeout := time.NewTimer(hang)
	defer timeout.Stop()
	select {
	case m := <-w:
		b.count(r, m, method)
		return method != "initialize" || m.Error == nil // a client that is not let in does not go on
	case <-ended:
		b.s.tally.add(b.whyEnded(), r, r.began, fmt.Sprintf("the bridge ended by itself (%v)", err))
		return false
	case <-timeout.C:
		b.s.tally.violation("bridge %d: call %d to %s hangs", b.n, r.id, r.server.name)
		return true
	}
}

// whyEnded tells our own killing from an end that only the gateway's end can be the reason of.
func (b *bridge) whyEnded() outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.killed {
		return hungUp
	}
	return transport
}

func (b *bridge) count(r request, m message, method string) {
	if method == "initialize" && m.Error == nil {
		return
	}
	o, text := r.judge(m)
	if o == wrong {
		b.s.tally.violation("bridge %d: call %d to %s: %s", b.n, r.id, r.server.name, text)
	}
	b.s.tally.add(o, r, r.began, text)
}

// reap waits for the process, whose input has ended.
func (b *bridge) reap() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(hang):
		b.s.tally.violation("bridge %d does not end with its input", b.n)
		b.kill()
		<-done
	}
}

// kill ends the present process without a word.
func (b *bridge) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		b.killed = true
		b.cmd.Process.Kill()
	}
}
