// Package operator serves what only the operator may ask of the gateway: pins, approvals, grants, sessions, stains, facts
// of tools, notices and statistics, in JSON over HTTP on a Unix socket of its own, where the kernel says who asks. On
// another one operators at other machines sign each act with a passkey.
package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/grant"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/operator"
)

// Act is one thing that the operator does, for the audit.
type Act struct {
	By      approval.Approver `json:"by"`
	Verb    string            `json:"verb"`    // approve, deny, revoke-grant, new-session, reset-session, thaw-session, end-session, clear-stain, accept-pins, forget-pins
	Subject string            `json:"subject"` // an id, CLIENT/HANDLE or a server
	Detail  string            `json:"detail,omitempty"`
	Was     *label.Session    `json:"was,omitempty"`    // of a session: what it had seen until then
	Failed  string            `json:"failed,omitempty"` // why it was not done; "": it is about to be, or was
}

// Desk is what the operator sits at.
type Desk struct {
	Approvals *approval.Store
	Grants    *grant.Store // nil: nothing is granted
	Sessions  *label.Sessions
	Pins      *pins.Store                     // nil: nothing is pinned
	Facts     func() []operator.ToolFacts     // what the gate goes by for each tool; nil: nobody says
	Mask      func([]byte) ([]byte, []string) // takes secrets out of JSON, and names them; nil: none are known
	Record    func(Act) error                 // has each act on the disk before it is done, and once more if it failed; nil: nobody keeps a record
	Ended     func()                          // is called when a session has ended, for what is open under it is to end as well; nil: there is nothing
	Stats     http.Handler                    // what servers' calls cost; nil: nobody counts
	Undo      Undoer                          // nil: nothing is kept
	Servers   Servers                         // nil: there are none
	Notices   Notices                         // nil: nobody is told that calls wait
	Log       *slog.Logger
}

const (
	maxBody  = 64 << 10 // bytes of a request that names no definitions
	headTime = 10 * time.Second
	// channel is how approvals that come in here were given.
	channel = "operator socket"
	// signedChannel is the channel of acts that a passkey signed.
	signedChannel = "passkey"
)

// HTTP returns a server for the operator's listener. What streams ends when it shuts down.
func (d *Desk) HTTP() *http.Server {
	ending, end := context.WithCancel(context.Background())
	return d.server(d.handler(ending), end)
}

// server returns a server that knows its peers, and that calls end when it shuts down.
func (d *Desk) server(h http.Handler, end func()) *http.Server {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headTime, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 16 << 10,
		ConnContext: withPeer, ErrorLog: slog.NewLogLogger(d.Log.Handler(), slog.LevelDebug),
	}
	s.RegisterOnShutdown(end)
	return s
}

type (
	peerKey   struct{} // of the user's id
	signerKey struct{} // of the name of the operator who signed the request
)

// withPeer notes who is at the other end of a connection (SO_PEERCRED, unix(7)).
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if w, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = w.NetConn()
	}
	if u, ok := c.(*net.UnixConn); ok {
		if peer, err := control.PeerOf(u); err == nil {
			return context.WithValue(ctx, peerKey{}, peer.UID)
		}
	}
	return ctx
}

// handler answers those whom the kernel names.
func (d *Desk) handler(ending context.Context) http.Handler { return peersOnly(d.mux(ending)) }

// mux has all paths. What streams ends with ending.
func (d *Desk) mux(ending context.Context) *http.ServeMux {
	mux := http.NewServeMux()
	d.approvals(mux, ending)
	if d.Grants != nil {
		d.grants(mux)
	}
	d.sessions(mux)
	if d.Pins != nil {
		d.pins(mux)
	}
	if d.Facts != nil {
		d.facts(mux)
	}
	if d.Undo != nil {
		d.undo(mux)
	}
	if d.Servers != nil {
		d.servers(mux)
	}
	if d.Notices != nil {
		d.notices(mux)
	}
	if d.Stats != nil {
		mux.Handle("/stats", d.Stats)
	}
	return mux
}

// peersOnly passes the requests on of those whom the kernel names.
func peersOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Value(peerKey{}).(int); !ok { // who may connect is for the socket's mode to say
			answer(w, http.StatusForbidden, map[string]string{"error": "this is for the operator alone"})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// approver is who asks: the operator who signed the request, or the user whom the kernel names.
func approver(r *http.Request) approval.Approver {
	uid, ok := r.Context().Value(peerKey{}).(int)
	if !ok {
		return approval.Approver{UID: -1, Name: "nobody", Channel: channel}
	}
	if name, ok := r.Context().Value(signerKey{}).(string); ok {
		return approval.Approver{UID: uid, Name: name, Channel: signedChannel}
	}
	return approval.Approver{UID: uid, Name: userName(uid), Channel: channel}
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(uid)
}

// act does something for the operator and answers with v, or with why it was not done. What is not recorded is not
// done, but for what makes things stricter.
func (d *Desk) act(w http.ResponseWriter, r *http.Request, a Act, v any, do func() error) {
	a.By = approver(r)
	unrecorded := d.record(a)
	err := unrecorded
	if unrecorded == nil || a.Verb == "deny" || a.Verb == "revoke-grant" {
		err = errors.Join(do(), unrecorded)
	}
	if err != nil {
		a.Failed = err.Error()
	}
	if err != nil && unrecorded == nil {
		_ = d.record(a) // it is in the log as well
	}
	d.Log.Info("the operator", "did", a.Verb, "subject", a.Subject, "by", a.By.Name, "uid", a.By.UID,
		"channel", a.By.Channel, "detail", a.Detail, "failed", a.Failed)
	reply(w, v, err)
}

func (d *Desk) record(a Act) error {
	if d.Record == nil {
		return nil
	}
	if err := d.Record(a); err != nil {
		return fmt.Errorf("recording it: %w", err)
	}
	return nil
}

var errRequest = errors.New("the request is not understood")

// read decodes a body of so many bytes at most in which nothing is unknown; an empty one is {}.
func read(w http.ResponseWriter, r *http.Request, most int64, v any) error {
	return decode(http.MaxBytesReader(w, r.Body, most), v)
}

func decode(from io.Reader, v any) error {
	dec := json.NewDecoder(from)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil && err != io.EOF {
		return fmt.Errorf("%w: %w", errRequest, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%w: something stands behind it", errRequest)
	}
	return nil
}

func reply(w http.ResponseWriter, v any, err error) {
	status := http.StatusInternalServerError
	switch {
	case err == nil:
		answer(w, http.StatusOK, v)
		return
	case errors.Is(err, errRequest):
		status = http.StatusBadRequest
	case errors.Is(err, approval.ErrRefused), errors.Is(err, grant.ErrRefused), errors.Is(err, label.ErrFull), errors.Is(err, pins.ErrRefused):
		status = http.StatusConflict
	case errors.Is(err, approval.ErrUnknown), errors.Is(err, grant.ErrUnknown), errors.Is(err, label.ErrUnknown),
		errors.Is(err, label.ErrNoStain), errors.Is(err, pins.ErrUnknown):
		status = http.StatusNotFound
	}
	answer(w, status, map[string]string{"error": strings.ToValidUTF8(err.Error(), "\uFFFD")})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client may have hung up
}

// line sends one value of a stream.
func line(w http.ResponseWriter, v any) error {
	c := http.NewResponseController(w)
	if err := c.SetWriteDeadline(time.Now().Add(headTime)); err != nil { // a watcher that does not read is let go
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	return c.Flush()
}

// Undoer has launchers tell what has changed in servers' folders, and restore it (registry.Registry).
type Undoer interface {
	Undo(ctx context.Context, server string, q handover.Undo) (handover.History, error)
}

// errNothing is the error of a request to restore that does not say what.
var errNothing = fmt.Errorf("%w: say since when, or which path", errRequest)

// undo are the paths of what servers have overwritten. since is the id of a call, at a time:
//
//	GET  /undo/SERVER?since=ID&at=TIME&path=PATH  what has changed, and what restoring it would do
//	POST /undo/SERVER  {"since": "ID", "path": "PATH", "discard": true}: restore it
func (d *Desk) undo(mux *http.ServeMux) {
	mux.HandleFunc("GET /undo/{server}", func(w http.ResponseWriter, r *http.Request) {
		q := handover.Undo{Since: r.FormValue("since"), Path: r.FormValue("path"), Discard: r.FormValue("discard") == "true"}
		var err error
		if at := r.FormValue("at"); at != "" {
			if q.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
				err = fmt.Errorf("%w: at: %w", errRequest, err)
			}
		}
		var history handover.History
		if err == nil {
			history, err = d.Undo.Undo(r.Context(), r.PathValue("server"), q)
		}
		if err == nil && len(history.Restores) > 0 {
			history.Stain, err = d.stain(r.PathValue("server"), history)
		}
		reply(w, history, err)
	})
	mux.HandleFunc("POST /undo/{server}", d.restore)
}

func (d *Desk) restore(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Since string    `json:"since"`
		At    time.Time `json:"at"`
		Path  string    `json:"path"`

		Discard bool `json:"discard"`
	}
	err := read(w, r, maxBody, &body)
	if err == nil && body.Since == "" && body.At.IsZero() && body.Path == "" {
		err = errNothing
	}
	if err != nil {
		reply(w, nil, err)
		return
	}
	var detail []string
	if body.Since != "" {
		detail = append(detail, "since call "+body.Since)
	}
	if !body.At.IsZero() {
		detail = append(detail, "since "+body.At.UTC().Format(time.RFC3339))
	}
	if body.Path != "" {
		detail = append(detail, fmt.Sprintf("%.200q", body.Path))
	}
	if body.Discard {
		detail = append(detail, "what was there is not kept")
	}
	server := r.PathValue("server")
	q := handover.Undo{Since: body.Since, At: body.At, Path: body.Path, Restore: true, Discard: body.Discard}
	q.Call = handover.Call{ID: audit.NewID(), Client: approver(r).Name, Tool: "pfar undo"}
	was, stain, err := d.returns(r.Context(), server, q)
	if stain != "" {
		detail = append(detail, "the stain "+stain+" returns")
	}
	act := Act{Verb: "undo-writes", Subject: server, Detail: strings.Join(detail, ", ")}
	var history handover.History
	d.act(w, r, act, &history, func() error {
		if err != nil {
			return err
		}
		var failed error
		history, failed = d.undone(r.Context(), server, q, was)
		history.Stain = stain
		return failed
	})
}

// returns is what a question to restore would restore, and the stain that returns with it.
func (d *Desk) returns(ctx context.Context, server string, q handover.Undo) (handover.History, string, error) {
	q.Restore = false
	was, err := d.Undo.Undo(ctx, server, q)
	if err != nil {
		return was, "", err
	}
	stain, err := d.stain(server, was)
	return was, stain, err
}

// undone restores what a question is about. What was written there under a stain that was cleared since has that stain
// again, before it is there again.
func (d *Desk) undone(
	ctx context.Context, server string, q handover.Undo, was handover.History,
) (handover.History, error) {
	stains := label.Restores{Sessions: d.Sessions}
	q.Call.Cleared = stains.Cleared()
	by := label.Source{Client: q.Call.Client, Tool: q.Call.Tool, Call: q.Call.ID}
	if err := stains.Restore(server, was.Cleared, was.Folders, by); err != nil {
		return was, err
	}
	history, err := d.Undo.Undo(ctx, server, q)
	// Once more: another operator may have cleared it meanwhile.
	return history, errors.Join(err, stains.Restore(server, was.Cleared, was.Folders, by))
}

// stain is the label that a restore puts back, "" for none.
func (d *Desk) stain(server string, h handover.History) (string, error) {
	l, err := label.Restores{Sessions: d.Sessions}.Forgotten(server, h.Cleared, h.Folders)
	if err != nil || !l.Known() {
		return "", err
	}
	return l.String(), nil
}
