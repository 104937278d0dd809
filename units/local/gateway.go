package local

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
)

const gatewayName = "pfar-gateway"

// Gateway is what the gateway gets. The listeners stay open here while it is started again.
type Gateway struct {
	HTTP     *net.TCPListener
	Unix     *net.UnixListener
	Servers  *net.UnixListener // SOCK_SEQPACKET
	Operator *net.UnixListener // for the operator alone
	Passkey  *net.UnixListener // for the remote console
	Metrics  *net.TCPListener  // nil: there is none
	Token    []byte
	Control  string // path of the socket where it asks for sessions; "": it has none
}

func (r *Runner) startGateway() error {
	user, err := r.users.acquire(gatewayName)
	if err != nil {
		return err
	}
	r.gatewayUser = user
	for _, dir := range []string{r.dirs.pins(), r.dirs.gateway()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making a directory of the gateway's: %w", err)
		}
		if err := own(dir, user); err != nil {
			return fmt.Errorf("giving %q to user %d: %w", dir, user.uid(), err)
		}
	}
	again := new(impatience)
	program, binds, err := r.program("pfar-gateway", gatewayName, user)
	if err != nil {
		return err
	}
	r.gateway = &service{
		name: gatewayName, dirs: r.dirs, log: r.cfg.Log, timeout: stopTimeout, restart: again.again, store: newStore(),
		prepare: func() (spec, error) {
			d, err := r.cfg.Gateway.descriptors()
			if err != nil {
				return spec{}, err
			}
			if err := rotate(r.dirs.log(units.GatewayLog), units.LogSegment); err != nil {
				return spec{}, err
			}
			return spec{
				argv: append([]string{program, "--pins", r.dirs.pins(), "--state", r.dirs.gateway(), "--inspectors",
					units.InspectDir(r.cfg.Run)}, r.cfg.Gateway.arguments()...), env: tracing(os.Environ()), user: user, binds: binds,
				descriptors: d,
				credentials: map[string][]byte{"token": r.cfg.Gateway.Token}, log: r.dirs.log(units.GatewayLog),
			}, nil
		},
		notice: func(m notification) {
			m.close()
			if anchor, ok := anchorIn(m.vars[units.NotifyAnchor]); ok {
				r.cfg.Events(anchor)
			}
			r.keepShort(units.GatewayLog, m)
		},
		changed: func(p phase, _ *process, _ int) {
			switch p {
			case active:
				again.served()
				r.cfg.Events(units.GatewayTurned{Running: true})
			case autoRestart, failed:
				r.cfg.Events(units.GatewayTurned{})
			}
		},
	}
	r.gateway.start()
	return nil
}

// GatewayUID returns the user id that the gateway runs as, on the host.
func (r *Runner) GatewayUID() int { return r.gatewayUser.uid() }

// tracing is the part of an environment that the OpenTelemetry specification defines, which says where the gateway
// sends its traces, if anywhere. It may hold keys.
func tracing(environment []string) (list []string) {
	for _, e := range environment {
		if strings.HasPrefix(e, "OTEL_") {
			list = append(list, e)
		}
	}
	return list
}

// arguments are those of the gateway's command line.
func (g Gateway) arguments() (list []string) {
	if g.Control != "" {
		list = append(list, "--control", g.Control)
	}
	return list
}

func (g Gateway) descriptors() ([]descriptor, error) {
	type listener struct {
		name string
		file interface{ File() (*os.File, error) }
	}
	all := []listener{
		{units.FDHTTP, g.HTTP}, {units.FDUnix, g.Unix}, {units.FDServers, g.Servers}, {units.FDOperator, g.Operator},
		{units.FDPasskey, g.Passkey},
	}
	if g.Metrics != nil {
		all = append(all, listener{units.FDMetrics, g.Metrics})
	}
	var list []descriptor
	for _, l := range all {
		f, err := l.file.File()
		if err != nil {
			return nil, fmt.Errorf("duplicating the %s listener: %w", l.name, err)
		}
		list = append(list, descriptor{l.name, f})
	}
	return list, nil
}

// anchorIn reads where the gateway's audit is. It takes nothing but that: the gateway's user may send anything.
func anchorIn(text string) (units.GatewayAnchor, bool) {
	number, hash, _ := strings.Cut(text, " ")
	seq, err := strconv.ParseUint(number, 10, 64)
	sum, herr := hex.DecodeString(hash)
	ok := err == nil && herr == nil && len(sum) == sha256.Size && hash == hex.EncodeToString(sum)
	return units.GatewayAnchor{Seq: seq, Hash: hash}, ok
}

// impatience restarts after every exit: soon, for calls wait, but later each time as long as it does not serve.
type impatience struct {
	mu    sync.Mutex
	delay time.Duration
}

func (i *impatience) again(int) (time.Duration, bool) {
	const least, most = 100 * time.Millisecond, units.RestartSec * time.Second
	i.mu.Lock()
	defer i.mu.Unlock()
	i.delay = min(max(2*i.delay, least), most)
	return i.delay, true
}

// served has the next restart come soon.
func (i *impatience) served() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.delay = 0
}

// ranWell is how long a process has run that served, if it does not say that it does.
const ranWell = 10 * time.Second

// ended is served for such a process, by how long it ran.
func (i *impatience) ended(after time.Duration) {
	if after >= ranWell {
		i.served()
	}
}

// keepShort rotates the log of that name if its writer says that it has grown.
func (r *Runner) keepShort(name string, m notification) {
	if m.vars[units.NotifyLogFull] == "" {
		return
	}
	if err := rotate(r.dirs.log(name), units.LogSegment); err != nil {
		r.cfg.Log.Warn("rotating a log, ignoring", "log", name, "error", err)
	}
}
