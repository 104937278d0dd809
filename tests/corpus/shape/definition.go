package shape

import "fmt"

// Tool is a tool's definition, and what goes in and comes out.
type Tool struct {
	Name, Raw string
	input     typed
	output    typed // schema "": none
}

// Prompt is a prompt's definition.
type Prompt struct {
	Name, Raw string
	Arguments []string // names
}

// Resource is the definition of a resource or of a template.
type Resource struct {
	URI, Raw string // of a template: one that it fits
	Template string
}

// Server is everything that a server of a name offers.
type Server struct {
	Name         string
	Seed         uint64
	Tools        []Tool
	Prompts      []Prompt
	Resources    []Resource
	Templates    []Resource
	Info         string // serverInfo
	Instructions string // a string with its quotes
}

// deepDefinition keeps values in definitions below the 64 levels that pfar serves of one.
const deepDefinition = 40

// unsound is how many definitions have one among them that may hold half of a surrogate pair where pfar reads it: such
// a tool or prompt is held back.
const unsound = 8

// NewServer makes up a server with n tools and a few of the rest.
func NewServer(seed uint64, name string, n int) *Server {
	v := &Server{Name: name, Seed: seed}
	for i := range n {
		v.Tools = append(v.Tools, New(seed, name, "tool", fmt.Sprint(i)).tool(fmt.Sprintf("tool-%d", i)))
	}
	for i := range n/4 + 1 {
		s := New(seed, name, "definition", fmt.Sprint(i))
		v.Prompts = append(v.Prompts, s.prompt(fmt.Sprintf("prompt.%d", i)))
		v.Resources = append(v.Resources, s.resource(fmt.Sprintf("shape://%s/r/%d?q=%%20a#f", name, i)))
		v.Templates = append(v.Templates, s.template(fmt.Sprintf("shape://%s/t%d", name, i)))
	}
	s := New(seed, name, "info")
	v.Info = s.object(append(s.unknown(3, 2), named("name", s.text()), named("version", s.text()), named("title", s.text())))
	v.Instructions = s.text()
	return v
}

// common are members that every definition may have.
func (s Source) common() []Member {
	s.deep = deepDefinition
	list := s.unknown(3, 3)
	list = append(list, s.meta()...)
	list = append(list, s.maybe("title", s.text)...)
	list = append(list, s.maybe("description", s.text)...)
	if s.one(3) {
		list = append(list, named("icons", s.array([]string{s.object(append(s.unknown(1, 1), named("src", `"https:\/\/icons.example.com\/a.png"`)))})))
	}
	return list
}

func (s Source) tool(name string) Tool {
	s.deep, s.sound = deepDefinition, !s.one(unsound)
	t := Tool{Name: name, input: s.whole()}
	members := append(s.common(), named("name", s.spelled(name)), named("inputSchema", t.input.schema))
	if s.one(2) {
		t.output = s.whole()
		members = append(members, named("outputSchema", t.output.schema))
	}
	if s.one(2) {
		hints := append(s.unknown(2, 1), s.maybe("readOnlyHint", func() string { return pick(s, []string{"true", "false"}) })...)
		members = append(members, named("annotations", s.object(append(hints, s.maybe("title", s.text)...))))
	}
	if s.one(4) {
		members = append(members, named("execution", `{"taskSupport":"forbidden"}`))
	}
	t.Raw = s.object(members)
	return t
}

func (s Source) prompt(name string) Prompt {
	s.deep, s.sound = deepDefinition, !s.one(unsound)
	p := Prompt{Name: name, Arguments: []string{"name", "größe"}[:s.IntN(3)]}
	var arguments []string
	for _, a := range p.Arguments {
		arguments = append(arguments, s.object(append(s.unknown(2, 2), named("name", `"`+a+`"`), named("required", pick(s, []string{"true", "false"})))))
	}
	members := append(s.common(), named("name", s.spelled(name)))
	if len(arguments) > 0 || s.one(2) {
		members = append(members, named("arguments", s.array(arguments)))
	}
	p.Raw = s.object(members)
	return p
}

func (s Source) resource(uri string) Resource {
	s.deep = deepDefinition
	members := append(s.common(), named("uri", s.spelled(uri)), named("name", s.text()))
	members = append(members, s.maybe("size", s.number)...)
	members = append(members, s.maybe("mimeType", s.text)...)
	return Resource{URI: uri, Raw: s.object(append(members, s.maybe("annotations", s.annotations)...))}
}

func (s Source) template(prefix string) Resource {
	form := pick(s, [][2]string{{"/{id}", "/7"}, {"/{+path}", "/a/b%20c"}, {"/{id}{?q,lang}", "/7?q=x&lang=de"}, {"{/a,b}", "/1/2"}})
	s.deep = deepDefinition
	members := append(s.common(), named("uriTemplate", s.spelled(prefix+form[0])), named("name", s.text()))
	return Resource{URI: prefix + form[1], Template: prefix + form[0], Raw: s.object(append(members, s.maybe("mimeType", s.text)...))}
}

func (s Source) annotations() string {
	members := s.unknown(2, 2)
	members = append(members, s.maybe("audience", func() string { return s.array([]string{`"user"`, `"assistant"`}) })...)
	members = append(members, s.maybe("priority", func() string { return pick(s, []string{"0", "1.0", "0.5", "1e-1"}) })...)
	return s.object(append(members, s.maybe("lastModified", func() string { return `"2026-01-12T15:00:58Z"` })...))
}
