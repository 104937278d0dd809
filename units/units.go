// Package units holds what pfar's processes share when they are run as units: descriptors, credentials and
// notifications, with or without systemd.
package units

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// GatewayLog is the name of the gateway's log among those of the servers. None of them can have it: there is a dot in
// it.
const GatewayLog = "pfar-gateway.service"

// AnchorsLog is the name of the log of where pfard's own audit is, like GatewayLog: what else pfard logs is for whoever
// has started it.
const AnchorsLog = "pfard.service"

// Exit codes of the launcher that the runner acts on, systemd by RestartPreventExitStatus=.
const (
	ExitCrashed  = 1  // the server ended by itself: start it again after RestartSec
	ExitGateway  = 75 // EX_TEMPFAIL of sysexits(3): the gateway went away, no fault of the server's
	ExitDisabled = 78 // EX_CONFIG of sysexits(3): crashed too often, or cannot start here at all
)

// sessionLength is 40 bits in base32: short, for it becomes a part of the paths of sockets.
const sessionLength = 8

// NewSession invents a handle for a client session that has a process of a server to itself.
func NewSession() string { return strings.ToLower(rand.Text()[:sessionLength]) }

// maxName has room in systemd's user names. An expression with {0,22} would take 20 kB in each process.
const maxName = 23

var serverName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// IsServer reports whether s may be the name of a server, and a part of a path: all that declarations take looks so.
func IsServer(s string) bool { return len(s) <= maxName && serverName.MatchString(s) }

// IsSession reports whether s is the handle of a session: 8 characters of a-z and 2-7 (RFC 4648, section 6).
func IsSession(s string) bool {
	return len(s) == sessionLength && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// Instance is the name of a server's process among all others: the server's own, or, for one that serves a single
// session, the beginning of that and the session's handle. No server's name has an underscore.
func Instance(server, session string) string {
	if session == "" {
		return server
	}
	return server[:min(len(server), sessionPrefix)] + "_" + session
}

// sessionPrefix is how much of its server's name an instance for one session has: systemd's user names have 31
// characters, and "pfar-m-" is before it.
const sessionPrefix = 14

// ServerMark begins each line of a log that a server wrote itself, so that it cannot pass for one of pfar's.
const ServerMark = "| "

// SessionMark begins each line in a server's log that is about one session's process; "" without a session.
func SessionMark(session string) string {
	if session == "" {
		return ""
	}
	return "[" + session + "] "
}

// RefreshLog is the name of the log of what refreshes token sets, like GatewayLog.
const RefreshLog = "pfar-refresh.service"

// LoginLog is the name of the log of what obtains token sets, like GatewayLog.
const LoginLog = "pfar-login.service"

// PageLog is the name of the log of one-time pages, like GatewayLog.
const PageLog = "pfar-setup.service"

// ConsoleLog is the name of the log of the console, like GatewayLog.
const ConsoleLog = "pfar-console.service"

// ChatLog is the name of the log of chats, like GatewayLog.
const ChatLog = "pfar-chat.service"

// InspectLog is the name of the log of inspectors, like GatewayLog.
const InspectLog = "pfar-inspect.service"

// FailedRefresh begins the instance of pfar-failed@.service that tells of an instance of pfar-refresh@.service; no
// server's name has a colon.
const FailedRefresh = "refresh:"

// RefreshInstance is the instance of pfar-refresh@.service and pfar-login@.service for a key of the vault: the key
// itself, or of a long one its beginning and a digest, since the user of the unit is named so, in 31 characters.
func RefreshInstance(key string) string {
	const longest, beginning, digest = 23, 14, 8
	if len(key) <= longest {
		return key
	}
	return key[:beginning] + "_" + Digest([]byte(key))[:digest]
}

// RestartSec is how long a runner waits before it starts a service again, in seconds.
const RestartSec = 1

// Names of descriptors in LISTEN_FDNAMES.
const (
	FDGateway  = "gateway"  // launcher: connection to the gateway (units/handover)
	FDPfard    = "pfard"    // launcher or bridge of a local pfard: the conversation with it (units/attach)
	FDEgress   = "egress"   // egress bridge: sockets inside the server's network namespace, told apart by their addresses
	FDRefresh  = "refresh"  // refresh or login, of a local pfard: connection to that (units/attach)
	FDPage     = "page"     // one-time page of a local pfard: connection to that (units/attach)
	FDInspect  = "inspect"  // pfar-sandbox inspect, pfar-egress --model: Unix listener of the gateway's questions
	FDMonitor  = "monitor"  // egress bridge: Unix listener for those who watch its connections
	FDHTTP     = "http"     // gateway: TCP listener
	FDUnix     = "unix"     // gateway: Unix listener for clients
	FDServers  = "servers"  // gateway: SOCK_SEQPACKET listener for launchers
	FDListen   = "listen"   // gateway: any of the three, told by what it is: those of one socket unit have one name
	FDOperator = "operator" // gateway: Unix listener for the operator alone
	FDPasskey  = "passkey"  // gateway: Unix listener for the remote console, where each act is signed
	FDConsole  = "console"  // remote console: TCP listener
	FDMetrics  = "metrics"  // gateway: TCP listener for Prometheus, absent unless it is asked for

	FDControl     = "control"     // pfard: Unix listener for the operator and the gateway
	FDLook        = "look"        // pfard: Unix listener for those who may look; absent for a user's own pfar
	FDAttach      = "attach"      // pfard: SOCK_SEQPACKET listener for launchers and bridges
	FDCredentials = "credentials" // pfard: Unix listener for systemd

	FDKept     = "server."  // gateway: begins the names of what the one before it kept of a server (Kept)
	FDSessions = "sessions" // gateway: memory with the client sessions of the one before it
	FDSecrets  = "secrets"  // gateway: a sealed file with what secrets the one before it recognised (package redact)
	FDClients  = "clients"  // gateway: a sealed file with the clients that the one before it let in (package access)
	FDPolicy   = "policy"   // gateway: a sealed file with what the one before it decided by (package gate)
	FDAudit    = "audit"    // gateway: the audit file that the one before it wrote to: to append, and to read (package trail)
)

// CredentialRedaction is the credential of a local pfard's bridge with what no record may hold, as package redact
// writes it. In a unit it is told, and so is what comes later (package attach).
const CredentialRedaction = "redaction"

// CredentialUpstream is the bridge's credential with the host's upstream proxy, absent if there is none. Its address
// may hold a password, so it comes neither by argv nor by the environment.
const CredentialUpstream = "upstream-proxy"

// Upstream is what CredentialUpstream holds, in JSON: the environment's HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
type Upstream struct {
	HTTPS string `json:"https,omitempty"`
	HTTP  string `json:"http,omitempty"`
	No    string `json:"no,omitempty"`
}

// Variables that pfar's processes add to sd_notify(3) messages; systemd ignores names that it does not know.
const (
	NotifyState   = "X_PFAR_STATE"   // a control.State
	NotifyTools   = "X_PFAR_TOOLS"   // number of tools served
	NotifyCrashes = "X_PFAR_CRASHES" // crashes in a row
	NotifyLimits  = "X_PFAR_LIMITS"  // how limits are held, in words
	NotifyShared  = "X_PFAR_SHARED"  // what the server sees of the host without a view of its own, in words; "": nothing
	NotifyVersion = "X_PFAR_VERSION" // of the launcher that speaks
	NotifySpeech  = "X_PFAR_SPEECH"  // with StateRunning: a Speech, in JSON
	NotifyWait    = "X_PFAR_WAIT"    // with StateWaiting and StateOffline: a Wait, in JSON

	// NotifyVerification comes with StateRunning: a Verification, in JSON.
	NotifyVerification = "X_PFAR_VERIFICATION"

	NotifyAnchor  = "X_PFAR_AUDIT"   // where the gateway's audit is: number and digest of its last record
	NotifyLogFull = "X_PFAR_LOGFULL" // the log has grown by LogSegment since the last such message
)

// LogSegment is how much a launcher writes to its log before it tells the runner, in bytes.
const LogSegment = 4 << 20

// LogTime begins each line of a log that is not the journal, which has times of its own.
const LogTime = "2006-01-02T15:04:05.000Z "

// States of a server, as NotifyState has them.
const (
	StateWaiting  = "waiting"            // for a credential, or for its program to be accepted
	StateStopped  = "stopped"            // by the operator or the declaration
	StateSleeping = "sleeping"           // started by the next call
	StateStarting = "starting"           // process started, tools not yet listed
	StateRunning  = "running"            // tools listed and served
	StateLogin    = "needs-login"        // waiting, for people: a person is to sign in
	StateInvalid  = "credential-invalid" // running, for people: its secrets are wrong, no client sees its tools
	StateBackOff  = "back-off"           // crashed, will be started again
	StateOffline  = "offline"            // a remote server that cannot be reached; is tried again
	StateFailed   = "failed"             // disabled after three crashes in a row, or cannot start on this host
	StateStopping = "stopping"
)

// ForProgram begins the status line of a server that waits for its program to be accepted, and not for a credential.
const ForProgram = "for its program"

// InspectDir is where the sockets of inspectors and notices lie, NAME.sock, and what their units load, NAME.json.
func InspectDir(run string) string { return filepath.Join(run, "inspect") }

// ChatNotices is the socket in InspectDir at which the process of a chat takes notices for its owner. No notice and no
// inspector has a dot in its name.
func ChatNotices(dir, chat string) string { return filepath.Join(dir, chat+".notice.sock") }

// ChatDir is the directory of the sockets on which the processes of chats ask pfard for set-ups (control.ServeChat).
func ChatDir(run string) string { return filepath.Join(run, "chat") }

// CredentialSecrets is the launcher's credential with the server's own: Secrets in JSON. One for all of them, so that
// the units need not say what they are called.
const CredentialSecrets = "secrets"

// CredentialUser is the credential with the user id that pfard has allotted to the unit, in decimal.
const CredentialUser = "user"

// Secrets are the values of a server's credentials by name or, if some are not to be had, in words which. Of a brokered
// one the value is its placeholder.
type Secrets struct {
	Values    map[string][]byte `json:"values,omitempty"`
	Missing   []string          `json:"missing,omitempty"`
	Remedy                      // of Missing: see Wait
	Authority []byte            `json:"authority,omitempty"` // certificate of the bridge's authority, in PEM; none without brokered ones
}

// Digest names the plan that a process of a unit was given, by the bytes of its credential.
func Digest(plan []byte) string {
	sum := sha256.Sum256(plan)
	return hex.EncodeToString(sum[:])
}

// maxDescriptors bounds those of one process: what the gateway keeps is by far the most (MaxStored).
const maxDescriptors = 8192

// AdoptDescriptors makes LISTEN_FDS valid for this process where LISTEN_PID is missing: the local runner cannot know
// the pid before it has forked. Under systemd it changes nothing. To be called first in main, before activation is
// read.
func AdoptDescriptors() {
	if os.Getenv("LISTEN_FDS") != "" && os.Getenv("LISTEN_PID") == "" {
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
}

// Descriptors returns the descriptors that were passed to this process (sd_listen_fds(3)) by name, and forgets the
// variables so that no child takes them for its own.
func Descriptors() (map[string][]*os.File, error) {
	AdoptDescriptors()
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, v := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(v)
	}
	if count == "" || pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > maxDescriptors {
		return nil, fmt.Errorf("reading LISTEN_FDS=%q: not a number of descriptors", count)
	}
	byName := make(map[string][]*os.File)
	list := strings.Split(names, ":")
	for i := range n {
		name := "unknown" // as sd_listen_fds_with_names(3) has it
		if i < len(list) && list[i] != "" {
			name = list[i]
		}
		const first = 3 // SD_LISTEN_FDS_START
		unix.CloseOnExec(first + i)
		byName[name] = append(byName[name], os.NewFile(uintptr(first+i), name))
	}
	return byName, nil
}
