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
	if fault := clientNameFault(m.Name); fault != "" {
		d.Problem(d.Start(), "Invalid name", "The model is named after the file, and the name %s %s. Rename the "+
			"file, for example to \"main.hcl\".", block.QuoteName(m.Name), fault)
	}
	name := m.Name
	m.Name = "model" // its own mistakes are told
	wrong := slices.Clone(d.Diags)
	declared, err := m.Declared()
	for _, mistake := range inspector.Mistakes(err) {
		at, given := d.Start(), d.Given[mistake.Attribute]
		if given != nil {
			at = given.Val.At
		}
		if given != nil && toldOf(wrong, given) || given == nil && d.meant[mistake.Attribute] {
			continue
		}
		summary := "Model not possible"
		if given == nil {
			summary = "Missing key"
		}
		d.Problem(at, summary, "%s.", strings.TrimSpace(mistake.Attribute+" "+mistake.Words))
	}
	declared.Name = name
	m.External = declared
	if d.Given["phases"] == nil && !d.meant["phases"] && !m.Nodes && d.Given["nodes"] == nil && !d.meant["nodes"] {
		d.Caution(d.Start(), "Model for nothing", "Nothing asks this model. Write phases = [\"plan\", \"answer\"] to "+
			"let pfar ask use it, or nodes = true for the steps of flows.")
	}
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
		d.Problem(f.Val.At, "Secret in a file", "%[1]s names a secret of the vault, and is no %[2]s. Store it with `pfar "+
			"vault set %[3]s` and write %[1]s = \"vault:%[3]s\". If this was the %[4]s, replace it: the file has held "+
			"it.", key, itself, example, strings.TrimSuffix(itself, " itself"))
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
			d.Problem(n.At, "Unknown phase", "%s is none of %s. %s", block.QuoteName(n.Text), block.OneQuoted(known),
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
