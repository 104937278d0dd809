package soak

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/pfar/pfar/units/control"
)

// blow is one thing that happens to pfar. It reports whether there was anything to do.
type blow struct {
	name   string
	weight int
	strike func(*soak) bool
}

func blows() []blow {
	return []blow{
		{"kill a server's process", 25, (*soak).killProcess},
		{"pfar restart", 12, (*soak).restart},
		{"change arguments", 12, (*soak).editArguments},
		{"change limits", 8, (*soak).editLimits},
		{"remove or add a file", 14, (*soak).moveFile},
		{"break a file", 6, (*soak).breakFile},
		{"SIGHUP", 8, (*soak).hangUp},
		{"kill a client", 8, (*soak).killClient},
		{"crowd a server", 8, (*soak).crowd},
		{"pfar start of what is disabled", 20, (*soak).revive},
	}
}

// chaos goes on for so long. What it started has ended when it returns.
func (s *soak) chaos(long time.Duration) {
	var list []blow
	for _, b := range blows() {
		for range b.weight {
			list = append(list, b)
		}
	}
	s.release(true)
	counts := map[string]int{}
	end := time.Now().Add(long)
	// Rarely, for everything else that happens ends with it; but at least twice. Not towards the end: what the last
	// gateway has gathered by then is weighed.
	every := min(max(long/20, 10*time.Second), long/4)
	next, last := time.Now().Add(every), end.Add(-long/3)
	for time.Now().Before(end) {
		time.Sleep(s.between(50*time.Millisecond, 400*time.Millisecond)) // that is the rate, nothing is waited for
		if now := time.Now(); now.After(next) && now.Before(last) {
			next = time.Now().Add(every)
			s.killGateway()
			counts["kill the gateway"]++
			continue
		}
		if b := list[s.roll(len(list))]; b.strike(s) {
			counts[b.name]++
		}
	}
	s.commands.Wait()
	said := time.Now()
	for deadline := time.Now().Add(10 * time.Minute); !s.tally.enough() && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond) // a busy machine has answered few calls yet
		if time.Since(said) > time.Minute {
			said = time.Now()
			s.t.Logf("not enough yet: %s", s.tally)
			fmt.Printf("not enough yet: %s\n", s.tally)
		}
	}
	for _, b := range append(blows(), blow{name: "kill the gateway"}) {
		s.t.Logf("%-32s %5d", b.name, counts[b.name])
		if counts[b.name] == 0 && long >= 30*time.Second && b.name != "pfar start of what is disabled" {
			s.t.Errorf("nobody did %q in %v: this is no chaos", b.name, long)
		}
	}
}

// victim is a server that chaos may touch.
func (s *soak) victim() *served {
	for {
		if v := s.pfar.servers[s.roll(len(s.pfar.servers))]; !v.calm {
			return v
		}
	}
}

// killProcess kills the server itself, or what confines it, or its launcher.
func (s *soak) killProcess() bool {
	r, _ := s.pfar.report()
	v := s.victim()
	if v.own && s.roll(2) == 0 {
		return s.killOwn(v)
	}
	launcher := server(r, v.name).PID
	if launcher == 0 {
		return false
	}
	all := append(descendants(launcher), process{pid: launcher})
	p := all[s.roll(len(all))]
	if s.roll(3) > 0 && len(all) > 1 {
		p = all[len(all)-2] // the innermost, which is the server
	}
	return syscall.Kill(p.pid, syscall.SIGKILL) == nil
}

// killOwn kills a process that serves one session alone, or perhaps the one that serves the rest.
func (s *soak) killOwn(v *served) bool {
	var candidates []int
	for _, pid := range s.pfar.marked() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		st, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if err == nil && string(comm) == "server\n" && bytes.Contains(line, []byte("\x00"+v.name+"\x00")) {
			candidates = append(candidates, pid)
			s.pfar.sees(int(st.Sys().(*syscall.Stat_t).Uid))
		}
	}
	if len(candidates) == 0 {
		return false
	}
	now := time.Now()
	s.pfar.mu.Lock()
	s.pfar.struck[v.name] = append(s.pfar.struck[v.name], span{now, now.Add(time.Second)})
	s.pfar.mu.Unlock()
	return syscall.Kill(candidates[s.roll(len(candidates))], syscall.SIGKILL) == nil
}

// beside runs a command while chaos goes on, if not too many run already.
func (s *soak) beside(args ...string) bool {
	select {
	case s.slots <- struct{}{}:
	default:
		return false
	}
	s.commands.Go(func() {
		defer func() { <-s.slots }()
		begin := time.Now()
		out, _ := s.pfar.command(args...) // it may fail: the server may be gone by now
		if took := time.Since(begin); took > recovery {
			s.tally.violation("pfar %q takes %v: %s", args, took, out)
		}
	})
	return true
}

func (s *soak) restart() bool { return s.beside("restart", s.victim().name) }

// revive is the operator, who looks after what has crashed three times in a row.
func (s *soak) revive() bool {
	r, _ := s.pfar.report()
	for _, v := range s.pfar.servers {
		if server(r, v.name).State == control.Failed {
			return s.beside("start", v.name)
		}
	}
	return false
}

func (s *soak) editArguments() bool {
	v := s.editable()
	s.pfar.write(v, v.declare(fmt.Sprint(s.roll(1000)), ""))
	return true
}

func (s *soak) editLimits() bool {
	v := s.editable()
	s.pfar.write(v, v.declare("", fmt.Sprintf("memory_limit = \"%dm\"\n  tasks_max = %d", 200+s.roll(100), 100+s.roll(100))))
	return true
}

// editable is a server of our own, which takes any edition, and whose file stays.
func (s *soak) editable() *served {
	for {
		if v := s.victim(); v.tool == "say" && !v.moves {
			return v
		}
	}
}

// moveFile takes a declaration away, or brings it back. With the roamers it looks as if one were renamed.
func (s *soak) moveFile() bool {
	for {
		v := s.victim()
		if !v.moves {
			continue
		}
		if os.Remove(s.pfar.path(v)) != nil {
			s.pfar.write(v, v.declare("", ""))
		}
		return true
	}
}

// breakFile writes what cannot be read, and mends it again: what runs must run on.
func (s *soak) breakFile() bool {
	v := s.editable()
	s.pfar.write(v, "server {\n  command = \n")
	s.commands.Go(func() {
		time.Sleep(s.between(0, time.Second))
		s.pfar.write(v, v.declare("", "")) // not what stood there: it may have been broken just before
	})
	return true
}

func (s *soak) hangUp() bool {
	for _, d := range descendants(s.pfar.cmd.Process.Pid) {
		if d.name == "pfard" {
			return syscall.Kill(d.pid, syscall.SIGHUP) == nil
		}
	}
	return false
}

func (s *soak) killClient() bool {
	s.bridges[s.roll(len(s.bridges))].kill()
	return true
}

// crowd makes more calls at once than a server may have and wait for it. The rest must be turned away.
func (s *soak) crowd() bool {
	const calls = 360 // 64 that run, 256 that wait, and some
	select {
	case s.slots <- struct{}{}:
	default:
		return false
	}
	s.commands.Go(func() {
		defer func() { <-s.slots }()
		c := s.newClient(2000, newer)
		defer c.close()
		var all sync.WaitGroup
		for _, v := range s.pfar.servers {
			for range calls {
				if v.crowded {
					all.Go(func() { c.once(request{server: v, wait: 100}) })
				}
			}
		}
		all.Wait()
	})
	return true
}

// killGateway is the end of every call that is under way. Servers and sessions go on, and the listeners stay, so that
// new calls wait for the next one.
func (s *soak) killGateway() {
	for _, d := range descendants(s.pfar.cmd.Process.Pid) {
		if d.name == "pfar-gateway" {
			s.pfar.mu.Lock()
			s.pfar.killed = append(s.pfar.killed, time.Now())
			s.pfar.mu.Unlock()
			syscall.Kill(d.pid, syscall.SIGKILL)
		}
	}
}
