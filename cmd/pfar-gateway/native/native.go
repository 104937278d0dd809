package native

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/native"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/jsonrpc"
)

// MaxValue bounds what a node gives, in bytes.
const MaxValue = 1 << 20

// Clock is the time by which nodes wait.
type Clock interface {
	After(d time.Duration) <-chan time.Time
}

// Nodes are pfar's own.
type Nodes struct {
	Files  *Files
	Models Models   // nil: none is declared
	Picker []string // the command that runs a program of jq in a process of its own (RunPick)
	Clock  Clock
	Log    *slog.Logger
}

// Call is a call of a native node.
type Call struct {
	Name      string // of the node
	Who       enforce.Identity
	Run, Step string
	Arguments json.RawMessage
	Label     gate.Label // of the arguments, at worst
}

// Ready is a call that the gate can decide about. Do makes it once the gate has let it pass: it returns the value, and
// the label of what comes from elsewhere than the arguments.
type Ready struct {
	Item enforce.Item
	Made json.RawMessage // what is sent in place of the arguments: the gate looks at it as well; nil: they are
	Do   func(ctx context.Context) (value json.RawMessage, label gate.Label, err error)
}

// List are the nodes that there are now. One that cannot be called is held.
func (n *Nodes) List() []flow.Node {
	list := native.Nodes()
	for i := range list {
		if !asksModel(list[i].ID) {
			continue
		}
		err := noModel
		if n.Models != nil {
			_, err = n.Models.Model("")
		}
		if err != nil {
			list[i].Held = err.Error()
		}
	}
	return list
}

var noModel = errors.New("no model is declared yet: write models.d/NAME.hcl")

func asksModel(name string) bool { return name == native.LLM || name == native.Summarize }

// Item is a node as the gate judges it before its call is known: by the worst that a call of it may be, with the
// arguments that are known.
func (n *Nodes) Item(name string, who enforce.Identity, arguments json.RawMessage) (enforce.Item, error) {
	var a struct{ Path, Model *string }
	_ = json.Unmarshal(arguments, &a) // what is no text is said at the call
	switch {
	case asksModel(name) && n.Models == nil:
		return enforce.Item{}, noModel
	case asksModel(name):
		one, err := n.Models.Model(deref(a.Model))
		if err != nil {
			return enforce.Item{}, err
		}
		return one.Item(), nil
	case name == native.ReadFile:
		l, err := n.Files.Worst(who.Client, a.Path)
		return item(name, l), err
	}
	return item(name, gate.Start), nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// item is a native node as the gate judges it, whose output has a label. What goes in reaches nobody: it stays in
// pfar's memory, or in the client's folder with its label.
func item(name string, output gate.Label) enforce.Item {
	effect := gate.None
	if name == native.WriteFile {
		effect = gate.Reversible // all versions before stay beside it
	}
	const from = "pfar"
	declared, _ := json.Marshal(gate.Declared{Server: access.OwnNodes, Words: []gate.Word{{
		Confidentiality: output.Confidentiality, Integrity: output.Integrity,
		Audience: gate.Secret, Effect: effect, From: from,
	}}}) // of words
	return enforce.Item{
		Server: access.OwnNodes, Declared: declared, Kind: gate.Tool, Name: name, Pin: from, Fits: true, Labelled: true,
	}
}

// Ready prepares a call. An error says what is wrong with its arguments.
func (n *Nodes) Ready(c Call) (Ready, error) {
	given, err := read(c.Arguments)
	if err != nil {
		return Ready{}, err
	}
	ready := Ready{Item: item(c.Name, gate.Start)}
	switch c.Name {
	case native.Template:
		text, err := given.text("template")
		ready.Do = func(context.Context) (json.RawMessage, gate.Label, error) { return made(given.fill(text)) }
		return ready, err
	case native.Pick:
		program, err := given.text("jq")
		ready.Do = func(ctx context.Context) (json.RawMessage, gate.Label, error) {
			value, err := n.pick(ctx, program, given["value"])
			return value, gate.Start, err
		}
		return ready, err
	case native.Backoff:
		pause, err := given.pause()
		ready.Do = func(ctx context.Context) (json.RawMessage, gate.Label, error) { return n.wait(ctx, pause) }
		return ready, err
	case native.Log:
		ready.Do = func(context.Context) (json.RawMessage, gate.Label, error) { return n.note(c, given) }
		return ready, nil
	case native.ReadFile:
		return n.readFile(c, given)
	case native.WriteFile:
		return n.writeFile(c, given)
	case native.LLM, native.Summarize:
		return n.askModel(c, given)
	}
	return Ready{}, fmt.Errorf("there is no node %q", c.Name)
}

// values are the arguments of a call.
type values map[string]json.RawMessage

func read(arguments json.RawMessage) (values, error) {
	ms, err := jsonrpc.Object(jsonrpc.OrEmpty(arguments), nil)
	if err != nil {
		return nil, fmt.Errorf("reading the arguments: %w", err)
	}
	v := make(values, len(ms))
	for i := range ms {
		v[string(ms[i].Name)] = ms[i].Raw()
	}
	return v, nil
}

// text is an argument that has to be text.
func (v values) text(name string) (string, error) {
	raw, ok := v[name]
	if !ok {
		return "", fmt.Errorf("the argument %q is missing", name)
	}
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "", fmt.Errorf("the argument %q is not text", name)
	}
	return *s, nil
}

// plain is an argument as text: a text as it is, anything else as JSON.
func (v values) plain(name string) string {
	if s, err := v.text(name); err == nil {
		return s
	}
	return string(v[name])
}

// made is a text that a node has made as its value.
func made(text string, err error) (json.RawMessage, gate.Label, error) {
	if err != nil {
		return nil, gate.Start, err
	}
	return jsonrpc.Quote(text), gate.Start, nil
}

// note writes a line into the log of the gateway, which operators read: what is more secret than internal is not in it.
func (n *Nodes) note(c Call, given values) (json.RawMessage, gate.Label, error) {
	line := given.plain("message")
	shown := visible.Reveal(cut(line, maxLine))
	if c.Label.Confidentiality > gate.Internal || !c.Label.Known() {
		shown = fmt.Sprintf("[%d bytes, %s]", len(line), c.Label)
	}
	n.Log.Info("a flow says", "client", c.Who.Client, "run", c.Run, "step", visible.Reveal(c.Step), "line", shown)
	return made(line, nil)
}

// maxLine bounds a line in the log, in bytes.
const maxLine = 500

// wait waits as long as a call of backoff says.
func (n *Nodes) wait(ctx context.Context, pause time.Duration) (json.RawMessage, gate.Label, error) {
	select {
	case <-n.Clock.After(pause):
	case <-ctx.Done():
		return nil, gate.Start, context.Cause(ctx)
	}
	b, err := json.Marshal(pause.Seconds())
	return b, gate.Start, err
}

// Bounds of backoff.
const (
	longestPause = time.Hour
	usualPause   = 5 * time.Minute
)

// pause is how long a call of backoff waits: longer by a factor than the time before, if there was one.
func (v values) pause() (time.Duration, error) {
	number := func(name string, usual, least, most float64) (float64, error) {
		raw, ok := v[name]
		if !ok || string(raw) == "null" {
			return usual, nil
		}
		var n float64
		if json.Unmarshal(raw, &n) != nil || n < least || n > most {
			return 0, fmt.Errorf("the argument %q is not a number from %v to %v", name, least, most)
		}
		return n, nil
	}
	first, err := number("seconds", 1, 0, longestPause.Seconds())
	factor, wrong := number("factor", 2, 1, 10)
	err = errors.Join(err, wrong)
	longest, wrong := number("longest", usualPause.Seconds(), 0, longestPause.Seconds())
	err = errors.Join(err, wrong)
	before, wrong := number("waited", 0, 0, longestPause.Seconds())
	if err = errors.Join(err, wrong); err != nil {
		return 0, err
	}
	pause := first
	if before > 0 {
		pause = before * factor
	}
	return time.Duration(min(pause, longest) * float64(time.Second)), nil
}

// askModel prepares a question to a model. What strangers may have written is fenced in it.
func (n *Nodes) askModel(c Call, given values) (Ready, error) {
	if n.Models == nil {
		return Ready{}, noModel
	}
	name := ""
	if given["model"] != nil {
		var err error
		if name, err = given.text("model"); err != nil {
			return Ready{}, err
		}
	}
	one, err := n.Models.Model(name)
	if err != nil {
		return Ready{}, err
	}
	prompt, err := given.prompt(c)
	if err != nil {
		return Ready{}, err
	}
	params := map[string]json.RawMessage{}
	if t := given["temperature"]; t != nil {
		params["temperature"] = t
	}
	return Ready{one.Item(), jsonrpc.Quote(prompt), func(ctx context.Context) (json.RawMessage, gate.Label, error) {
		text, label, err := one.Ask(ctx, c.Who, prompt, params)
		if err == nil && len(text) > MaxValue {
			err = fmt.Errorf("the model's answer has %d bytes, at most %d are kept", len(text), MaxValue)
		}
		return jsonrpc.Quote(text), label, err
	}}, nil
}

// summarize is the prompt of the node summarize-text, and of a node llm that has a text and no prompt.
const summarize = "Summarize the text below. Write nothing but the summary."

// prompt is what a model is asked. Values of the store are fenced unless nobody but the owner can have written them.
func (v values) prompt(c Call) (string, error) {
	safe := v
	if c.Label.Integrity != gate.Clean {
		var id fence.ID
		_, _ = rand.Read(id[:]) // crashes rather than fails
		about := fence.Meta{Server: access.OwnNodes, Tool: c.Name, Label: c.Label}
		safe = make(values, len(v))
		for name := range v {
			safe[name] = jsonrpc.Quote(string(fence.Fence(nil, v.plain(name), about, id)))
		}
	}
	prompt := summarize
	if c.Name == native.LLM && (v["prompt"] != nil || v["text"] == nil) {
		text, err := v.text("prompt")
		if err != nil {
			return "", err
		}
		if prompt, err = safe.fill(text); err != nil {
			return "", err
		}
	}
	if v["text"] != nil {
		prompt += "\n\n" + safe.plain("text")
	}
	if len(prompt) > MaxValue {
		return "", fmt.Errorf("the prompt has %d bytes, and a model is asked at most %d", len(prompt), MaxValue)
	}
	return prompt, nil
}

// cut shortens a text to so many bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return text[:n] + "…"
}
