package units

import (
	"encoding/json"
	"strconv"

	"github.com/pfar/pfar/policies/egress"
)

// Event is what a runner tells of what it runs: an Update, or one of the types below.
type Event interface{ event() }

type (
	// BridgeRefused: the egress bridge of a server, or of its process for one session, has refused something.
	BridgeRefused struct {
		Server, Session string
		Refusal         egress.Refusal
	}
	// GatewayTurned: the gateway's service has come up, as another process perhaps, or gone down; or its port has.
	GatewayTurned struct{ Running bool }
	// GatewayAnchor is where the gateway says that its audit is.
	GatewayAnchor struct {
		Seq  uint64
		Hash string
	}
	// Left: nothing of an instance is left. It is told before Stop returns.
	Left struct{ Instance string }
)

func (Update) event()        {}
func (BridgeRefused) event() {}
func (GatewayTurned) event() {}
func (GatewayAnchor) event() {}
func (Left) event()          {}

// Update is what has become of one server, or of the process of it that serves one session, as a runner tells it.
type Update struct {
	Server  string
	Session string // handle of the one session that the process serves; "": it is the server's own
	State   string // State...
	Detail  string // status line in words; "" leaves the last one
	PID     int    // of the launcher; 0: none
	UID     int    // of the sandboxed process, on the host
	Tools   int
	Crashes int
	Confinement
	Version string         // of the launcher, with Limits; "": it does not say
	Refusal egress.Refusal // last one of the egress bridge; the zero value leaves the last one
	Ended   bool           // no process is left, and none will be started again
	Outside bool           // the service manager was asked by somebody else to start it or, with Ended, to stop it

	Wait  Wait // with StateWaiting and StateOffline
	Found      // with StateRunning
}

// Found is what the gateway has found out about a server that runs.
type Found struct {
	Speech
	Verification Verification
}

// Speech is how pfar speaks with a server that runs.
type Speech struct {
	Protocol  string `json:"protocol,omitempty"`  // revision of MCP, such as "2025-11-25"
	Transport string `json:"transport,omitempty"` // found by pfar's adapter: TransportHTTP or TransportSSE
}

// The adapter names the transport that it has found in the _meta of the handshake's result, by the first of these.
const (
	TransportKey  = "pfar/transport"
	TransportHTTP = "stream-http"
	TransportSSE  = "sse"
)

// Confinement is how a server is confined, in words.
type Confinement struct {
	Limits    string // see NotifyLimits
	Shared    string // see NotifyShared
	Unreached string // settings of its unit that do not reach it; "": none
}

// Take applies what a process says to its service manager (sd_notify(3)), by variable.
func (u *Update) Take(vars map[string]string) {
	if v, ok := vars[NotifyState]; ok {
		u.State, u.Tools, u.Wait, u.Found = v, 0, Wait{}, Found{}
		if v == StateWaiting || v == StateOffline {
			u.Wait = parseWait(vars[NotifyWait])
		}
	}
	if v, ok := vars[NotifyVerification]; ok {
		u.Verification = parseVerification(v)
	}
	if v, ok := vars["STATUS"]; ok {
		u.Detail = v
	}
	if v, ok := vars[NotifySpeech]; ok {
		_ = json.Unmarshal([]byte(v), &u.Speech) // or as much as can be read
	}
	if v, err := strconv.Atoi(vars[NotifyTools]); err == nil {
		u.Tools = v
	}
	if v, err := strconv.Atoi(vars[NotifyCrashes]); err == nil {
		u.Crashes = v
	}
	if v, ok := vars[NotifyLimits]; ok {
		u.Limits = v
	}
	if v, ok := vars[NotifyShared]; ok {
		u.Shared = v
	}
	if v, ok := vars[NotifyVersion]; ok {
		u.Version = v
	}
}
