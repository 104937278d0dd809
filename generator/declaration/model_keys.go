package declaration

import (
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/inspector"
)

// The phases of pfar ask in which a model may be asked.
const (
	planPhase   = "plan"
	answerPhase = "answer"
)

// modelFile reads the declaration of a model.
type modelFile struct {
	*reader
	model *Model
}

func newModelFile(f *block.File, m *Model) *modelFile {
	d := &modelFile{reader: newReader(f, wordsOfModels), model: m}
	m.places = d.Places
	d.schema = []block.Section{{Keys: d.keys(), Top: true}}
	return d
}

func (d *modelFile) keys() []block.Key {
	m := d.model
	return []block.Key{
		key("url", `"https://api.example.com/v1"`, "", d.SetLine(&m.URL)),
		key("model", `"small"`, "", d.SetLine(&m.External.Model)),
		key("key", `"vault:model_key"`, "", d.secret),
		key("phases", `["plan", "answer"]`, `[]`, d.phases),
		key("nodes", `true`, `false`, d.SetTruth(&m.Nodes)),
		key("audience", `"public"`, `"public"`, marshalled(d.reader, &m.Audience, labels(), wordsOfLabels)),
		key("local", `true`, `true`, d.SetTruth(&m.Local)),
		key("max_tokens", `2048`, `2048`, d.setInteger(&m.Chat.Tokens, 1, inspector.MaxTokens)),
		key("timeout", `"2m"`, `"2m"`, d.setDuration(&m.Timeout, time.Second, 5*time.Minute, false)),
		key("allow_private", `["10.0.0.5"]`, `[]`, d.private),
	}
}

// read reads the keys, and then checks those that depend on each other.
func (d *modelFile) read(root *block.Node) {
	d.Section(d.called(""), root)
	m := d.model
	readExternal(d.reader, &m.External, "model", "main.hcl", nil)
	if d.Given["phases"] == nil && !d.meant["phases"] && !m.Nodes && d.Given["nodes"] == nil && !d.meant["nodes"] {
		d.Caution(d.Start(), "Model for nothing", "Nothing asks this model. Write phases = [\"plan\", \"answer\"] to "+
			"let pfar ask use it, or nodes = true for the steps of flows.")
	}
}

// readExternal checks what the keys of a file say of an External, and fills in its defaults. kind is the word for what
// the file declares, example a name of a file, and keys are the keys of attributes that are called otherwise there.
func readExternal(d *reader, e *inspector.External, kind, example string, keys map[string]string) {
	if fault := clientNameFault(e.Name); fault != "" {
		d.Problem(d.Start(), "Invalid name", "The %s is named after the file, and the name %s %s. Rename the file, for "+
			"example to %q.", kind, block.QuoteName(e.Name), fault, example)
	}
	name := e.Name
	e.Name = kind // the mistakes of the name are told
	wrong := slices.Clone(d.Diags)
	declared, err := e.Declared()
	for _, mistake := range inspector.Mistakes(err) {
		attribute := mistake.Attribute
		if key, is := keys[attribute]; is {
			attribute = key
		}
		given := d.Given[attribute]
		switch {
		case given != nil && toldOf(wrong, given) || given == nil && d.meant[attribute]:
			continue
		case given == nil:
			d.Problem(d.Start(), "Missing key", "%s.", strings.TrimSpace(attribute+" "+mistake.Words))
		default:
			summary := block.UpperFirst(kind) + " not possible"
			d.Problem(given.Val.At, summary, "%s.", strings.TrimSpace(attribute+" "+mistake.Words))
		}
	}
	declared.Name = name
	*e = declared
}

// toldOf reports whether one of the diagnostics is about a key.
func toldOf(diags hcl.Diagnostics, f *block.Field) bool {
	return slices.ContainsFunc(diags, func(g *hcl.Diagnostic) bool {
		return g.Subject.Start.Byte >= f.At.Start.Byte && g.Subject.Start.Byte <= f.Val.At.End.Byte
	})
}

// secret reads which secret of the vault is the API's key.
func (d *modelFile) secret(f *block.Field) {
	if s, ok := secretNamed(d.reader, f, "key", "key itself", "model_key"); ok {
		d.model.Key = s
	}
}

// secretNamed reads which secret of the vault a key of a file names. What is none may be the secret itself, so it is
// not repeated. itself is the word for the secret, and example a name of one.
func secretNamed(d *reader, f *block.Field, key, itself, example string) (string, bool) {
	s, ok := d.Text(f)
	if !ok {
		d.Hidden.All(f.Val)
		return "", false
	}
	if name, is := strings.CutPrefix(s, "vault:"); !is || !IsVaultKey(name) || block.SecretLooking(name) {
		d.Hidden.All(f.Val)
		d.Problem(f.Val.At, "Secret in a file", "%[1]s names a secret of the vault. It is not the %[2]s. Store the "+
			"secret with `pfar vault set %[3]s` and write %[1]s = \"vault:%[3]s\". If this was the %[4]s, replace it: "+
			"the file has held it.", key, itself, example, strings.TrimSuffix(itself, " itself"))
		return "", false
	}
	return s, true
}

func (d *modelFile) phases(f *block.Field) {
	known := []string{planPhase, answerPhase}
	for _, n := range d.Texts(f) {
		switch n.Text {
		case planPhase:
			d.model.Plans = true
		case answerPhase:
			d.model.Answers = true
		default:
			d.Problem(n.At, "Unknown phase", "%s is not one of %s. %s", block.QuoteName(n.Text), block.OneQuoted(known),
				block.Meant("Write WORD.", n.Text, known, wordsOfPhases()))
		}
	}
}

func (d *modelFile) private(f *block.Field) { d.model.AllowPrivate = privateAddresses(d.reader, f) }

// privateAddresses reads to which addresses a name may lead though they are not public.
func privateAddresses(d *reader, f *block.Field) (list []string) {
	for _, n := range d.TextsTo(maxPrefixes, f, "Too many addresses", `Write a prefix, such as "10.1.0.0/16".`) {
		if _, err := egress.ParsePrivate(n.Text); err != nil {
			d.Problem(n.At, "Invalid address", "%s.", block.UpperFirst(block.Escape(err.Error())))
			continue
		}
		list = append(list, n.Text)
	}
	return list
}

// modelLanguage is what declarations of models are like.
func modelLanguage() block.Language {
	public := func(name string) bool {
		_, known := modelSections()[0].Find(name)
		return known && name != "url" && name != "key"
	}
	says := sentences("A model has no block %[1]s. Its name is the file's.", "A model has no block.")
	return block.Language{Public: public, Remedies: true, Variable: variable(""), Says: says}
}

// wordsOfModels are what a key of a model is called elsewhere.
func wordsOfModels() map[string]string {
	return map[string]string{
		"base_url": "url", "api_base": "url", "endpoint": "url", "host": "url", "uri": "url", "address": "url",
		"api_key": "key", "token": "key", "secret": "key", "auth": "key", "password": "key", "token_env": "key",
		"model_name": "model", "name": "model", "engine": "model", "deployment": "model",
		"phase": "phases", "uses": "phases", "roles": "phases", "node": "nodes", "flows": "nodes",
		"label": "audience", "sees": "audience", "public_sink": "audience",
		"max_output_tokens": "max_tokens", "max_completion_tokens": "max_tokens", "tokens": "max_tokens",
		"private": "allow_private", "allow_local": "allow_private", "unix": "local", "only_local": "local",
	}
}

func wordsOfPhases() map[string]string {
	return map[string]string{
		"planner": planPhase, "planning": planPhase, "select": planPhase,
		"synthesize": answerPhase, "synthesis": answerPhase, "answers": answerPhase, "reply": answerPhase,
	}
}

// ModelKeys returns the schema of models.
func ModelKeys() []Key { return keysOf(modelSections()) }

func modelSections() []block.Section {
	m := new(Model)
	m.Chat = new(inspector.Chat)
	return newModelFile(block.NewFile("", nil, block.Language{}), m).schema
}
