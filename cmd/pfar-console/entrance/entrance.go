// Package entrance lets operators at other machines in, by their passkeys, and takes new passkeys of those who are
// invited.
package entrance

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/webauthn"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/page"
)

// Entrance signs operators in, and adds passkeys of people who are invited. Everybody who reaches the port reaches it:
// it keeps no memory for strangers, and sends pfard nothing on their behalf.
type Entrance struct {
	host  Host
	now   func() time.Time
	style string
	key   [sha256.Size]byte // of challenges

	mu   sync.Mutex
	used map[string]time.Time // challenges with which somebody has signed in, until they are too old
}

// Host is the console behind an entrance.
type Host interface {
	// Known has the operators and the invitations, as pfard has them now; nil: pfard has not said it yet.
	Known() *attach.Known
	// SignIn lets an operator in, by a passkey of that id, and leads to a call; "": to the calls that wait.
	SignIn(w http.ResponseWriter, r *http.Request, operator string, key []byte, call string)
	// Enroll stores the passkey that was made with an invitation.
	Enroll(ctx context.Context, nonce string, k *passkey.Key) error
}

// New returns an entrance, whose pages have a style.
func New(host Host, now func() time.Time, style string) *Entrance {
	e := &Entrance{host: host, now: now, style: style, used: map[string]time.Time{}}
	_, _ = rand.Read(e.key[:]) // crashes rather than fails
	return e
}

// Operators are all, as pfard has them now.
func (e *Entrance) Operators() []passkey.Operator {
	if k := e.host.Known(); k != nil {
		return k.Operators
	}
	return nil
}

// invitation returns the one that a nonce is of, if it is for the console at an origin and still good.
func (e *Entrance) invitation(nonce, origin string) *attach.Invitation {
	k, sum := e.host.Known(), sha256.Sum256([]byte(nonce))
	if k == nil {
		return nil
	}
	for _, one := range k.Invitations {
		if subtle.ConstantTimeCompare(one.Digest, sum[:]) == 1 && one.Origin == origin && e.now().Before(one.Until) {
			return &one
		}
	}
	return nil
}

// OriginOf is where a browser has sent its request, as passkey.Origin writes it.
func OriginOf(r *http.Request) string {
	return "https://" + strings.TrimSuffix(r.Host, ":443")
}

// Has reports whether an operator or somebody who is invited knows the console by the name that a request has.
func (e *Entrance) Has(r *http.Request) bool {
	k, origin := e.host.Known(), OriginOf(r)
	if k == nil || r.TLS == nil {
		return false
	}
	at := func(o passkey.Operator) bool {
		return slices.ContainsFunc(o.Keys, func(k passkey.Key) bool { return k.Origin == origin })
	}
	return slices.ContainsFunc(k.Operators, at) ||
		slices.ContainsFunc(k.Invitations, func(i attach.Invitation) bool {
			return i.Origin == origin && e.now().Before(i.Until)
		})
}

// Holds reports whether an operator is one still, and has a passkey still.
func (e *Entrance) Holds(operator string, key []byte) bool {
	o := passkey.Find(e.Operators(), operator)
	return o.Role.May(passkey.Look) &&
		slices.ContainsFunc(o.Keys, func(k passkey.Key) bool { return bytes.Equal(k.ID, key) })
}

// enrollTime is how long pfard has to store a passkey.
const enrollTime = time.Minute

// challengeTime is how long somebody has to sign in.
const challengeTime = 5 * time.Minute

// seed is what a challenge begins with: the time and 16 random bytes.
const seed = 8 + 16

// challenge is a new one for a purpose: a seed, and a code over both that only this process can make.
func (e *Entrance) challenge(purpose string) []byte {
	begin := binary.BigEndian.AppendUint64(nil, uint64(e.now().UnixNano()))
	begin = append(begin, make([]byte, seed-len(begin))...)
	_, _ = rand.Read(begin[8:]) // crashes rather than fails
	return append(begin, e.code(purpose, begin)...)
}

func (e *Entrance) code(purpose string, begin []byte) []byte {
	h := hmac.New(sha256.New, e.key[:])
	h.Write(begin)
	h.Write([]byte(purpose))
	return h.Sum(nil)
}

// challenged reports whether a challenge is one for a purpose, not too old, and not used.
func (e *Entrance) challenged(purpose string, challenge []byte) bool {
	if len(challenge) != seed+sha256.Size || !hmac.Equal(e.code(purpose, challenge[:seed]), challenge[seed:]) {
		return false
	}
	at := time.Unix(0, int64(binary.BigEndian.Uint64(challenge)))
	e.mu.Lock()
	defer e.mu.Unlock()
	_, used := e.used[string(challenge)]
	return !used && e.now().Before(at.Add(challengeTime))
}

// use makes a challenge good for nothing.
func (e *Entrance) use(challenge []byte) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	for old, until := range e.used {
		if now.After(until) {
			delete(e.used, old)
		}
	}
	if _, there := e.used[string(challenge)]; there {
		return false
	}
	e.used[string(challenge)] = now.Add(challengeTime)
	return true
}

// signer finds the operator whose passkey has signed a challenge at an origin.
func (e *Entrance) signer(origin string, challenge, response []byte) (passkey.Operator, bool) {
	id := webauthn.KeyID(response)
	for _, o := range e.Operators() {
		for _, k := range o.Keys {
			if len(id) > 0 && string(k.ID) == string(id) && k.Origin == origin && o.Role.May(passkey.Look) {
				return o, webauthn.Check(o, challenge, response) == nil
			}
		}
	}
	return passkey.Operator{}, false
}

const (
	callWords   = "A link has led you here to look at a call. "
	signInWords = "Sign in with your passkey. If you have none, ask the administrator of pfar for a link " +
		"(pfar operator invite)."
	notHere = "there is no such page, or you are not signed in: open / and sign in"
	badLink = "this link does not work: it was used or replaced, or has expired. Ask the administrator of pfar for a " +
		"new one (pfar operator invite)"
	badPasskey = "This passkey is not one of an operator here, or you took more than 5 minutes. Try again, or ask the " +
		"administrator of pfar for a link."
)

const (
	maxForm    = 16 << 10 // bytes
	signInPath = "/sign-in"
	enrollPath = "/enroll/"
	signInAs   = "sign in"
)

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode reads what encode writes; nil: it is something else.
func decode(text string) []byte {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

// door is a page before somebody is signed in.
type door struct {
	Title, Words, Action, Button string

	Options   string // of the browser's passkey, in JSON
	Makes     bool   // it makes a passkey, and signs with none
	Challenge string
	Call      string // the id of the call that it leads to; "": to none
	Done      bool   // there is nothing left to do but to go on
	Refused   string

	Style  template.CSS
	Script template.JS
}

// callAt returns the ID of the call in the path of a link. For another path it returns "".
func callAt(path string) string {
	id, ok := strings.CutPrefix(path, passkey.CallPath)
	if !ok || !operator.IsID(id) {
		return ""
	}
	return id
}

// PathTo returns the path that leads through the sign-in to a page of a session: to a call, or to the first page.
func PathTo(rest string) string {
	if callAt("/"+rest) == "" {
		return "/"
	}
	return "/" + rest
}

// ServeHTTP answers somebody who is not signed in. It tells nobody whether there is a call: the link of any id leads to
// the sign-in.
func (e *Entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	nonce, enrolls := strings.CutPrefix(r.URL.Path, enrollPath)
	call := callAt(r.URL.Path)
	get := r.Method == http.MethodGet && loopback.Navigated(r.Header) && r.URL.RawQuery == ""
	post := r.Method == http.MethodPost && r.URL.RawQuery == ""
	switch {
	case (r.URL.Path == "/" || call != "") && get:
		e.showDoor(w, signInDoor(e, OriginOf(r), call))
	case (r.URL.Path == signInPath || call != "") && post:
		e.signIn(w, r, call)
	case enrolls && (get || post):
		e.enroll(w, r, nonce, post)
	case r.URL.Path == manifestPath && r.Method == http.MethodGet:
		serveManifest(w)
	case r.URL.Path == iconPath && r.Method == http.MethodGet:
		serveIcon(w)
	default:
		loopback.Refuse(w, http.StatusNotFound, notHere)
	}
}

// signInDoor is the page that leads to a call; "": to the calls that wait.
func signInDoor(e *Entrance, origin, call string) door {
	challenge := e.challenge(signInAs)
	d := door{
		Title: "Sign in", Words: signInWords,
		Action: signInPath, Button: "Sign in with a passkey",
		Options: inJSON(webauthn.Ask(origin, challenge, nil)), Challenge: encode(challenge),
	}
	if call != "" {
		d.Words, d.Action, d.Call = callWords+signInWords, passkey.CallPath+call, call
	}
	return d
}

func inJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// doorForm reads the form of a door.
func doorForm(w http.ResponseWriter, r *http.Request) (challenge, response []byte, ok bool) {
	if !loopback.Own(r) {
		loopback.Refuse(w, http.StatusForbidden, "nothing was done: only pfar's own page may send its form")
		return nil, nil, false
	}
	form, err := loopback.ReadForm(w, r, maxForm, "challenge", "proof", "act")
	if err != nil {
		loopback.Unreadable(w, "nothing was done: ", err)
		return nil, nil, false
	}
	return decode(form["challenge"]), []byte(form["proof"]), true
}

func (e *Entrance) signIn(w http.ResponseWriter, r *http.Request, call string) {
	challenge, response, ok := doorForm(w, r)
	if !ok {
		return
	}
	origin := OriginOf(r)
	d := signInDoor(e, origin, call)
	d.Refused = badPasskey
	if !e.challenged(signInAs, challenge) {
		e.showDoor(w, d)
		return
	}
	who, ok := e.signer(origin, challenge, response)
	if !ok || !e.use(challenge) {
		e.showDoor(w, d)
		return
	}
	e.host.SignIn(w, r, who.Name, webauthn.KeyID(response), call)
}

// enroll shows the page of an invitation, or takes the passkey that the browser has made there.
func (e *Entrance) enroll(w http.ResponseWriter, r *http.Request, nonce string, post bool) {
	origin := OriginOf(r)
	i := e.invitation(nonce, origin)
	if len(nonce) != len(page.NewNonce()) || i == nil {
		loopback.Refuse(w, http.StatusNotFound, badLink)
		return
	}
	d := enrollDoor(e, origin, nonce, *i)
	if !post {
		e.showDoor(w, d)
		return
	}
	challenge, response, ok := doorForm(w, r)
	if !ok {
		return
	}
	c := http.NewResponseController(w) // setting deadlines never fails on a socket
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Now().Add(enrollTime + loopback.WriteTime))
	if d.Refused = e.enrolled(r.Context(), nonce, origin, challenge, response); d.Refused == "" {
		d = door{
			Title: "Passkey added", Done: true,
			Words: "You are the operator " + visible.Reveal(i.Operator) + ", with the role " + string(i.Role) + ".",
		}
	}
	e.showDoor(w, d)
}

func enrollDoor(e *Entrance, origin, nonce string, i attach.Invitation) door {
	challenge := e.challenge(nonce)
	o := passkey.Find(e.Operators(), i.Operator)
	o.Name = i.Operator
	return door{
		Title:  "Add a passkey",
		Words:  "You become the operator " + visible.Reveal(i.Operator) + ", with the role " + string(i.Role) + ".",
		Action: enrollPath + nonce, Button: "Add a passkey", Makes: true,
		Options: inJSON(webauthn.Make(origin, challenge, o)), Challenge: encode(challenge),
	}
}

// enrolled has pfard add a passkey, and says why it does not.
func (e *Entrance) enrolled(ctx context.Context, nonce, origin string, challenge, response []byte) string {
	if !e.challenged(nonce, challenge) {
		return "You took too long. Try again."
	}
	k, err := webauthn.Made(origin, challenge, response, e.now())
	if err != nil {
		return "Nothing was stored: " + err.Error() + "."
	}
	ctx, cancel := context.WithTimeout(ctx, enrollTime)
	defer cancel()
	err = e.host.Enroll(ctx, nonce, &k)
	if ctx.Err() != nil {
		return "pfard has not answered, so it is not known whether the passkey was stored: try to sign in."
	}
	if err != nil {
		return "Nothing was stored: " + visible.Reveal(err.Error()) + "."
	}
	return ""
}

var (
	//go:embed passkey.js
	Script string // of all pages for other machines: it has the browser make passkeys and sign with them
	//go:embed door.html
	text string

	doors = template.Must(template.New("door").Parse(text))
)

// Loads is what these pages may load beside their style and scripts (Content-Security-Policy).
const Loads = "img-src 'self'; manifest-src 'self'; "

// showDoor sends a page to somebody who is not signed in.
func (e *Entrance) showDoor(w http.ResponseWriter, d door) {
	d.Style, d.Script = template.CSS(e.style), template.JS(Script)
	var b bytes.Buffer
	if err := doors.Execute(&b, d); err != nil {
		loopback.Refuse(w, http.StatusInternalServerError, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // the browser may have hung up
}
