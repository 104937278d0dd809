package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfard/watch"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall/host"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/systemd"
)

// hold keeps the host's firewall at what the running egress bridges may do. Every change replaces the whole table, once
// for all changes that came while it was being replaced. What it is to be is in a file, too: bridges outlive pfard.
type hold struct {
	cfg     holdConfig
	changed chan struct{}
	ctx     context.Context // of what it waits for
	stop    context.CancelFunc
	done    chan struct{}
	table   bool // there is one; run's

	mu   sync.Mutex
	want egress.Hold            // without a slice: no table
	said map[string]*heldBridge // by instance: who has said what it is to this pfard
	free map[string]*heldBridge // likewise, of whom no cgroup is known: nothing holds them
	lame error                  // why the table is not what is wanted; nil: it is
	next *application
}

// holdConfig is what hold works with.
type holdConfig struct {
	State      string         // path of the file
	ResolvConf string         // resolv.conf(5), which may change and be a link
	Proxies    []egress.Proxy // of the host's network
	Log        *slog.Logger
	Changed    func() // Unheld may say something else now; nil: nobody asks

	quiet   bool                               // Unheld says nothing: one note of pfard's says it all
	apply   func(egress.Hold, time.Time) error // nil: the kernel, which is also watched
	watch   func(ctx context.Context, lost func()) error
	cgroups func(pid int, unit, slice string) (own, above egress.Cgroup, err error)
	own     func(netip.Addr) bool
	grace   time.Duration
}

// application is one replacement of the table.
type application struct {
	done chan struct{}
	err  error // once done is closed
}

func newApplication() *application { return &application{done: make(chan struct{})} }

// returning is how long bridges that an earlier pfard knew have to say what they are.
const returning = time.Minute

// newHold takes up what an earlier pfard left, and puts it in force again, as the table may be gone since. Until there
// has been a bridge it changes nothing.
func newHold(cfg holdConfig) (*hold, error) {
	if cfg.apply == nil {
		cfg.apply, cfg.watch = applyToHost, host.Watch
	}
	if cfg.cgroups == nil {
		cfg.cgroups = host.Cgroups
	}
	if cfg.own == nil {
		cfg.own = ownAddress
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.grace == 0 {
		cfg.grace = returning
	}
	h := &hold{cfg: cfg, changed: make(chan struct{}, 1), done: make(chan struct{}), said: map[string]*heldBridge{},
		free: map[string]*heldBridge{}, next: newApplication()}
	if err := h.load(); err != nil {
		cfg.Log.Warn("taking up what holds bridges, ignoring: they say again what they want", "error", err)
	}
	h.table = h.want.Slice != (egress.Cgroup{})
	w := watch.Dir(cfg.ResolvConf, func(blind error) {
		if blind != nil {
			cfg.Log.Warn("changes of the name servers are not noticed, trying again", "error", blind)
		}
	})
	h.readDNS()
	h.change()
	h.ctx, h.stop = context.WithCancel(context.Background())
	forget := time.AfterFunc(cfg.grace, h.forget)
	if cfg.watch != nil {
		go func() {
			if err := cfg.watch(h.ctx, h.lost); err != nil {
				cfg.Log.Warn("nobody sees when the table that holds bridges is removed, ignoring", "error", err)
			}
		}()
	}
	go func() {
		defer close(h.done)
		defer w.Close()
		defer forget.Stop()
		h.run(h.ctx, w.Changed)
	}()
	return h, nil
}

func applyToHost(want egress.Hold, now time.Time) error {
	if want.Slice == (egress.Cgroup{}) {
		return host.Remove()
	}
	return host.Apply(want, now)
}

// clear takes the table away: there is no server left. The next bridge has it made anew. What belongs to no server, a
// refresh or what asks a model, is held on.
func (h *hold) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want.Bridges = slices.DeleteFunc(slices.Clone(h.want.Bridges), func(b egress.Bridge) bool { return !strings.HasPrefix(b.Server, "@") })
	if len(h.want.Bridges) == 0 {
		h.want.Slice = egress.Cgroup{}
	}
	h.change()
}

// close leaves the table as it is: bridges go on.
func (h *hold) close() {
	h.stop()
	<-h.done
}

// holdState is the file of what the table is to be.
func holdState(dirs control.Dirs) string { return filepath.Join(dirs.Run, "hold.json") }

// unhold removes the table and what is known of it, for good. A pfard that runs would put it back.
func unhold(state string) error {
	err := os.Remove(state)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, host.Remove())
}

// heldBridge is one process of a bridge.
type heldBridge struct {
	h        *hold
	instance string
	policy   egress.Policy
	cgroup   egress.Cgroup
	pace     *rate.Limiter
	ctx      context.Context // ends with its connection
	stop     context.CancelFunc
	held     bool
	why      error // that it has no cgroup, and so is not in the table
}

// What one bridge may have changed: each change costs pfard milliseconds, and a bridge may have been taken over.
const (
	changesPerSecond = 20
	changesAtOnce    = 200
)

// Hello takes in the bridge of an instance, whose main process is pid, and returns once it can reach nothing but name
// servers, and what it was allowed before if it is still the same start of its unit. If it cannot be held, the words
// say why; it may run all the same, on the strength of its own rules.
func (h *hold) Hello(instance string, pid int, policy egress.Policy) (b *heldBridge, why string) {
	return h.of(instance, systemd.BridgeUnit(instance), pid, policy)
}

// of is Hello for the main process of any unit in the bridges' slice, by a name that nothing else has.
func (h *hold) of(instance, unit string, pid int, policy egress.Policy) (b *heldBridge, why string) {
	b = &heldBridge{h: h, instance: instance, policy: policy, pace: rate.NewLimiter(changesPerSecond, changesAtOnce)}
	b.ctx, b.stop = context.WithCancel(h.ctx)
	own, slice, err := h.cfg.cgroups(pid, unit, systemd.EgressSlice)
	defer h.cfg.Changed()
	if err != nil {
		b.why = err
		h.mu.Lock()
		h.free[instance] = b
		h.mu.Unlock()
		return b, err.Error()
	}
	b.cgroup = own
	h.mu.Lock()
	delete(h.free, instance)
	h.said[instance] = b
	h.want.Slice = slice
	if i := h.index(instance); i < 0 {
		h.want.Bridges = append(h.want.Bridges, egress.Bridge{Server: instance, Cgroup: own})
	} else if h.want.Bridges[i].Cgroup != own {
		h.want.Bridges[i] = egress.Bridge{Server: instance, Cgroup: own}
	}
	a := h.change()
	h.mu.Unlock()
	if err := h.wait(a); err != nil {
		return b, err.Error()
	}
	h.mu.Lock()
	b.held = true
	h.mu.Unlock()
	return b, ""
}

// Allow returns nil once the bridge can connect to where a says, which its policy must permit. Of too many questions
// the later ones are answered later.
func (b *heldBridge) Allow(a attach.Allow) error {
	if len(a.Addresses) > egress.MaxAllowed {
		return fmt.Errorf("%d addresses of one name, which are more than %d", len(a.Addresses), egress.MaxAllowed)
	}
	if err := b.policy.Admit(a.Name, a.Port, a.Addresses, b.h.cfg.Proxies, b.h.cfg.own); err != nil {
		return err
	}
	if err := b.pace.Wait(b.ctx); err != nil {
		return err
	}
	now := time.Now()
	return b.change(func(want *egress.Bridge) {
		want.Allowed = egress.Extend(want.Allowed, a.Addresses, a.Port, now, now.Add(egress.Clamp(a.For)))
	})
}

// Listen lets this host connect to a port of 127.0.0.1 on which the process listens. It returns once that gets through.
func (b *heldBridge) Listen(port uint16) error {
	return b.change(func(want *egress.Bridge) { want.Listens = port })
}

// change changes what the firewall lets the bridge do, and returns when it does.
func (b *heldBridge) change(do func(want *egress.Bridge)) error {
	h := b.h
	h.mu.Lock()
	i := h.index(b.instance)
	switch {
	case b.cgroup == (egress.Cgroup{}): // nothing holds it
		h.mu.Unlock()
		return nil
	case h.said[b.instance] != b || i < 0:
		h.mu.Unlock()
		return errors.New("another process is the bridge now")
	}
	do(&h.want.Bridges[i])
	applied, held := h.change(), b.held
	h.mu.Unlock()
	if err := h.wait(applied); err != nil && held {
		return err
	}
	return nil
}

// Gone forgets a bridge whose process has ended, unless another one has come in its place.
func (b *heldBridge) Gone() {
	b.stop()
	defer b.h.cfg.Changed()
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	if b.h.free[b.instance] == b {
		delete(b.h.free, b.instance)
	}
	if b.h.said[b.instance] != b {
		return
	}
	delete(b.h.said, b.instance)
	b.h.want.Bridges = slices.DeleteFunc(b.h.want.Bridges, func(x egress.Bridge) bool { return x.Server == b.instance })
	b.h.change()
}

// Unheld says in words which bridges run on the strength of their own rules alone, and why.
func (h *hold) Unheld() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	if h.cfg.quiet {
		return nil
	}
	if h.lame != nil && len(h.want.Bridges) > 0 {
		list = append(list, fmt.Sprintf("the machine's firewall does not hold the bridges, which go by their own "+
			"rules alone: %v", h.lame))
	}
	for _, instance := range slices.Sorted(maps.Keys(h.free)) {
		list = append(list, fmt.Sprintf("the machine's firewall does not hold the bridge of %q, which goes by its own "+
			"rules alone: %v", instance, h.free[instance].why))
	}
	return list
}

// index finds an instance's bridge. The lock is held.
func (h *hold) index(instance string) int {
	return slices.IndexFunc(h.want.Bridges, func(b egress.Bridge) bool { return b.Server == instance })
}

// change has the table replaced, and returns the replacement that has all that is wanted by now. The lock is held.
func (h *hold) change() *application {
	h.want.Bridges = slices.Clone(h.want.Bridges) // the last one may be on its way to the kernel
	select {
	case h.changed <- struct{}{}:
	default:
	}
	return h.next
}

func (h *hold) wait(a *application) error {
	select {
	case <-a.done:
		return a.err
	case <-h.done:
		return errors.New("pfard is stopping")
	}
}

func (h *hold) run(ctx context.Context, resolvConf <-chan struct{}) {
	for {
		select {
		case <-h.changed:
			h.replace()
		case <-resolvConf:
			if h.readDNS() {
				h.replace()
			}
		case <-ctx.Done():
			return
		}
	}
}

// replace makes the table what is wanted now.
func (h *hold) replace() {
	h.mu.Lock()
	a, want := h.next, h.want
	want.Bridges = slices.Clone(want.Bridges)
	h.next = newApplication()
	h.mu.Unlock()
	defer close(a.done)
	there := want.Slice != (egress.Cgroup{})
	if !there && !h.table {
		return // there has been no bridge
	}
	// Before the table: a pfard that is killed in between leaves a file that says too much, and nothing reads it but
	// the next one, for bridges that are still the same.
	if err := h.save(want); err != nil {
		h.cfg.Log.Warn("saving what holds bridges, ignoring", "error", err)
	}
	a.err = h.cfg.apply(want, time.Now())
	h.mu.Lock()
	turned := (a.err == nil) != (h.lame == nil)
	h.lame = a.err
	h.mu.Unlock()
	if turned {
		h.cfg.Changed()
	}
	if a.err != nil {
		h.cfg.Log.Warn("bridges are held by their own rules alone", "error", a.err)
		return
	}
	h.table = there
}

// lost is called when somebody else has removed the table.
func (h *hold) lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.want.Slice == (egress.Cgroup{}) {
		return // it was clear
	}
	h.cfg.Log.Warn("the table that holds bridges was removed from the machine's nftables: it is put back")
	h.change()
}

// forget drops bridges that an earlier pfard knew and that did not come back.
func (h *hold) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.want.Bridges)
	h.want.Bridges = slices.DeleteFunc(slices.Clone(h.want.Bridges), func(b egress.Bridge) bool { return h.said[b.Server] == nil })
	if len(h.want.Bridges) != n {
		h.change()
	}
}

func (h *hold) load() error {
	b, err := os.ReadFile(h.cfg.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var want egress.Hold
	if err := json.Unmarshal(b, &want); err != nil {
		return fmt.Errorf("reading %q: %w", h.cfg.State, err)
	}
	h.want = want
	return nil
}

func (h *hold) save(want egress.Hold) error {
	b, err := json.Marshal(want)
	if err != nil {
		return err
	}
	return durable.Replace(h.cfg.State, b)
}

// readDNS reports whether the name servers are others now. If there is no file, package net asks as if it were empty.
func (h *hold) readDNS() bool {
	b, err := os.ReadFile(h.cfg.ResolvConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.cfg.Log.Warn("reading where name servers are, ignoring", "error", err)
		return false
	}
	list := egress.NameServers(string(b))
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Equal(list, h.want.DNS) {
		return false
	}
	h.want.DNS = list
	return true
}

// ownAddress reports whether an address is this host's, also if that cannot be found out. It asks over netlink: pfard
// has no other sockets of the network.
func ownAddress(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	return err != nil || a.IsLoopback() || slices.ContainsFunc(list, func(x net.Addr) bool {
		p, err := netip.ParsePrefix(x.String())
		return err == nil && p.Addr().Unmap() == a.Unmap()
	})
}

// proxiesOf returns where the bridges that have u connect to. They read it with more care; what they make nothing of,
// they do not start with.
func proxiesOf(u units.Upstream) []egress.Proxy {
	var list []egress.Proxy
	for _, s := range []string{u.HTTPS, u.HTTP} {
		s = strings.TrimSpace(s)
		if _, after, ok := strings.Cut(s, "://"); ok {
			s = after
		}
		s = strings.TrimSuffix(s[strings.LastIndexByte(s, '@')+1:], "/")
		name, port, err := net.SplitHostPort(s)
		if err != nil {
			name, port = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), "80"
		}
		if a, err := netip.ParseAddr(name); err == nil {
			name = a.String() // as the bridge writes it
		}
		if n, ok := egress.ParsePort(port); ok && name != "" {
			list = append(list, egress.Proxy{Host: name, Port: n})
		}
	}
	return list
}
