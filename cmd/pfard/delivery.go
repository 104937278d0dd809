package main

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/broker/rootca"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// delivery makes of the credentials that a plan names what the processes of its server get.
type delivery struct {
	handing
	vault interface {
		Deliver(key string) ([]byte, error) // vault.ErrNotFound, if there is none
		Tokens(key string) (set oauth.Set, text []byte, ok bool, err error)
		Seed() ([]byte, error)
		// Refused takes it that a server has refused the token under a key. Refreshes reports whether another one is being
		// obtained, or why the last try failed.
		Refused(key string)
		Refreshes(key string) (now bool, problem string)
	}
	learn func(name string, value []byte) // is called with each value before anybody gets it
	stood *stood
	given *given

	signIns *signIns
}

// receiver is the process that is given a secret.
type receiver string

const (
	toLauncher receiver = "launcher" // those of env and file
	toBridge   receiver = "bridge"   // those that are brokered
	toRefresh  receiver = "refresh"  // a token set
	toLogin    receiver = "login"    // the secret of a client
	toModel    receiver = "model"    // the key of an inspector or a notice
)

// handing leaves a record of each secret that a process is given, before it is, or is not, and why. No value is in it.
type handing struct {
	log    *slog.Logger // not one whose entries are recorded
	append func(audit.Record) error
}

// unrecorded is why a process is not given a secret that is there.
type unrecorded struct{ error }

func (u unrecorded) Error() string {
	return "that it is handed over cannot be recorded: " + u.error.Error()
}
func (u unrecorded) Unwrap() error { return u.error }

// over records that a process of a server's is about to be given a secret, how it is if there are several ways, or why
// it is not. With an error, an unrecorded, it must not be.
func (h handing) over(to receiver, key, how, server string, why error) error {
	r := audit.Record{Kind: audit.Vault, Method: "deliver", Subject: key, Server: server, Channel: how, To: string(to), Outcome: "done"}
	if why != nil {
		r.Outcome, r.Reason = "refused", why.Error()
	}
	var failed error
	if err := h.append(r); err != nil && why == nil {
		failed = unrecorded{err}
		why = failed
	}
	attributes := []any{"operation", "deliver", "key", key}
	for _, a := range [][2]string{{"deliver", how}, {"to", string(to)}, {"server", server}} {
		if a[1] != "" {
			attributes = append(attributes, a[0], a[1])
		}
	}
	if why != nil {
		h.log.Warn("vault", append(attributes, "outcome", "refused", "error", why)...)
	} else {
		h.log.Info("vault", append(attributes, "outcome", "done")...)
	}
	return failed
}

// secrets is what the launcher gets: the values, but of a brokered one the placeholder. The error is about what is
// there and cannot be used.
func (d delivery) secrets(p plan.Plan) (units.Secrets, error) {
	s, err := d.values(p)
	if err != nil || len(s.Missing) > 0 || !opens(p) {
		return s, err
	}
	seed, err := d.vault.Seed()
	if err != nil {
		return units.Secrets{}, err
	}
	signs, err := rootca.New(seed, p.Name)
	if err != nil {
		return units.Secrets{}, err
	}
	s.Authority, _, _, err = rootca.Certificate(signs)
	return s, err
}

// opens reports whether a server's bridge opens connections.
func opens(p plan.Plan) bool { return brokers(p) || len(p.Proven()) > 0 }

func brokers(p plan.Plan) bool {
	return slices.ContainsFunc(p.Credentials, func(c plan.Credential) bool { return c.Deliver == broker.OnWire })
}

// values is secrets without the authority, which is signed anew each time.
func (d delivery) values(p plan.Plan) (_ units.Secrets, err error) {
	var seed []byte
	if brokers(p) {
		if seed, err = d.vault.Seed(); err != nil {
			return units.Secrets{}, err
		}
	}
	s := units.Secrets{Values: map[string][]byte{}}
	for _, c := range p.Credentials {
		value, err := d.value(c)
		if m, ok := errors.AsType[missing](err); ok {
			s.Missing, s.Remedy = append(s.Missing, m.words), cmp.Or(s.Remedy, m.remedy)
			continue
		}
		if err == nil && c.Deliver == broker.OnWire {
			value, _, err = d.placeholder(seed, p.Name, c, value)
		}
		if err != nil {
			return units.Secrets{}, err
		}
		s.Values[c.Name] = value
	}
	refusal := d.refusal(p)
	if len(s.Missing) == 0 && refusal == "" {
		if refusal, err = d.given.claim(p, keysOf(p)); err != nil {
			return units.Secrets{}, err
		}
	}
	if refusal != "" {
		s.Missing, s.Remedy = append(s.Missing, refusal), cmp.Or(d.remedy(p), s.Remedy)
	}
	if len(s.Missing) > 0 {
		s.Values = nil
	}
	return s, nil
}

// refusal says in words why a server gets nothing of what is there; "": it does.
func (d delivery) refusal(p plan.Plan) string {
	return cmp.Or(d.compare(p).mismatch(), d.given.refusal(p))
}

// remedy is what ends a refusal, zero if nothing does.
func (d delivery) remedy(p plan.Plan) units.Remedy {
	if c := d.compare(p); c.mismatch() != "" {
		return c.renewal
	}
	if list, err := d.given.check(p); err == nil && len(list) > 0 {
		return units.ToDo(units.GiveSecrets, p.Name)
	}
	return units.Remedy{}
}

// digest tells what a launcher is given from anything else; "" if it lacks something. It is of no use to guess values
// by without the vault.
func (d delivery) digest(s units.Secrets) string {
	seed, err := d.vault.Seed()
	if err != nil || len(s.Missing) > 0 {
		return ""
	}
	s.Authority = nil // signed anew each time, by the same key
	text, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	mac := hmac.New(sha256.New, seed)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}

// handout is the digest of what a server's launcher would be given now.
func (d delivery) handout(p plan.Plan) string {
	s, err := d.values(p)
	if err != nil {
		return ""
	}
	return d.digest(s)
}

// material is what the bridge gets; nil if it opens no connections. What is missing or cannot be
// brokered is left out, and all of a server that is refused it: the bridge refuses what it would be needed for.
func (d delivery) material(p plan.Plan) (*broker.Material, error) {
	if !opens(p) {
		return nil, nil
	}
	seed, err := d.vault.Seed()
	if err != nil {
		return nil, err
	}
	m := &broker.Material{Opened: p.Proven()}
	if m.Authority, err = rootca.New(seed, p.Name); err != nil {
		return nil, err
	}
	refusal := d.refusal(p)
	var keys []string // that it gets
	for _, c := range p.Credentials {
		if c.Deliver != broker.OnWire {
			continue
		}
		value, err := d.value(c)
		if err == nil && refusal != "" {
			err = missing{words: refusal}
		}
		var placeholder []byte
		var former []string
		if err == nil {
			placeholder, former, err = d.placeholder(seed, p.Name, c, value)
		}
		if err != nil {
			_ = d.overOne(toBridge, p, c, err) // nothing is handed over
			if _, lacks := errors.AsType[missing](err); lacks || errors.Is(err, broker.ErrUnfit) {
				continue // the launcher says so when it starts; the others go on
			}
			return nil, err
		}
		m.Secrets = append(m.Secrets, broker.Secret{
			Name: c.Name, Placeholder: string(placeholder), Former: former, Value: string(value), Hosts: c.Hosts, Places: c.Places,
		})
		if c.Key != "" && !slices.Contains(keys, c.Key) {
			keys = append(keys, c.Key)
		}
	}
	if refusal, err = d.given.claim(p, keys); refusal != "" || err != nil { // another was quicker
		m.Secrets = nil
	}
	return m, err
}

// brokered is the material in JSON, as attach.Message.Broker has it; nil if the bridge opens no connections. An
// error that is an unrecorded passes: a bridge goes on with what it has, or waits.
func (d delivery) brokered(p plan.Plan) (*os.File, error) {
	m, err := d.material(p)
	if err != nil || m == nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	f, err := units.Sealed("broker", b)
	if err != nil {
		return nil, err
	}
	for _, c := range p.Credentials {
		if !slices.ContainsFunc(m.Secrets, func(s broker.Secret) bool { return s.Name == c.Name }) {
			continue
		}
		if err := d.overOne(toBridge, p, c, nil); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// missing is the error of a credential that is not there, or not yet.
type missing struct {
	words  string
	remedy units.Remedy // see units.Wait
}

func (m missing) Error() string { return m.words }

// value resolves one credential.
func (d delivery) value(c plan.Credential) ([]byte, error) {
	value := []byte(os.Getenv(c.From))
	if c.From == "" {
		var err error
		value, err = d.vault.Deliver(c.Key)
		m, waits := errors.AsType[missing](err)
		switch {
		case waits:
			return nil, missing{c.Name + ": " + m.words, m.remedy}
		case errors.Is(err, vault.ErrNotFound):
			remedy := units.ToDo(units.StoreSecret, c.Key)
			return nil, missing{c.Name + ": " + remedy.Command, remedy}
		case err != nil:
			return nil, err
		}
	} else if len(value) == 0 {
		return nil, missing{words: fmt.Sprintf("%s: set the environment variable %s for pfar", c.Name, c.From)}
	}
	d.learn(secretName(c), value)
	return value, nil
}

// placeholder is what stands for a value, and what has stood for former ones.
func (d delivery) placeholder(seed []byte, server string, c plan.Credential, value []byte) (text []byte, former []string, err error) {
	p, err := broker.Placeholder(seed, server+"/"+c.Name, string(value))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return []byte(p), d.stood.before(server, c.Name, p), nil
}

// record leaves a record of each secret that a launcher is about to be given, or is not, and why. With an error it must
// be given none.
func (d delivery) record(p plan.Plan, s units.Secrets, err error) error {
	if err == nil && len(s.Missing) > 0 {
		err = missing{words: strings.Join(s.Missing, "; ")}
	}
	for _, c := range p.Credentials {
		if c.Deliver == broker.OnWire {
			continue
		}
		if failed := d.overOne(toLauncher, p, c, err); failed != nil {
			return failed
		}
	}
	return nil
}

func (d delivery) overOne(to receiver, p plan.Plan, c plan.Credential, why error) error {
	how := string(c.Deliver)
	if c.Deliver == broker.InEnvironment {
		how = "env"
	}
	return d.over(to, secretName(c), how, units.Instance(p.Name, p.Gateway.Session), why)
}

// served is the vault for servers: of a token set they get the access token, once it is fresh.
type served struct {
	*vault.Vault
	tokens *tokens
}

// Refused passes it on to who refreshes token sets.
func (s served) Refused(key string) { s.tokens.refused(key) }

// Refreshes asks who does.
func (s served) Refreshes(key string) (now bool, problem string) { return s.tokens.refreshes(key) }

func (s served) Deliver(key string) ([]byte, error) {
	if wait := s.tokens.awaits(key); wait.words != "" {
		return nil, wait
	}
	value, err := s.Vault.Deliver(key)
	if login := s.tokens.signIns.login(key); errors.Is(err, vault.ErrNotFound) && login.Act != "" {
		words := "needs login: " + login.Command
		if s.tokens.signIns.remote(key) != "" { // some servers take tokens that a person obtains in another way
			words += ", or pfar vault set " + key
		}
		return nil, missing{words, login}
	}
	return value, err
}
