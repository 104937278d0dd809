package shape

import (
	"fmt"
	"slices"
)

// Request is a request without its _meta, and the member of the parameters that says to whom it goes: "name" or "uri",
// or the member of "ref".
type Request struct {
	Method  string
	Params  []Member
	Subject string // the name or URI as it is listed
}

// Write writes the parameters, with these members in _meta, in this order, if there are any.
func (r Request) Write(s Source, meta []Member) string {
	if len(meta) == 0 {
		return s.ordered(r.Params)
	}
	return s.ordered(slices.Insert(slices.Clone(r.Params), s.IntN(len(r.Params)+1), named("_meta", s.ordered(meta))))
}

// Request makes one up that the server takes. prefix stands before the names of its tools and prompts.
func (v *Server) Request(s Source, prefix string) Request {
	r := v.request(s, prefix)
	s.Shuffle(len(r.Params), func(i, j int) { r.Params[i], r.Params[j] = r.Params[j], r.Params[i] })
	return r
}

func (v *Server) request(s Source, prefix string) Request {
	switch s.IntN(10) {
	case 0:
		p := pick(s, v.Prompts)
		r := Request{Method: "prompts/get", Params: []Member{named("name", s.spelled(prefix+p.Name))}, Subject: prefix + p.Name}
		if len(p.Arguments) > 0 || s.one(2) {
			r.Params = append(r.Params, named("arguments", s.strings(p.Arguments)))
		}
		r.Params = append(r.Params, s.unknown(2, 3)...)
		return r
	case 1, 2:
		uri := pick(s, append(v.Resources[:len(v.Resources):len(v.Resources)], v.Templates...)).URI
		return Request{Method: "resources/read", Params: append(s.unknown(2, 3), named("uri", s.spelled(uri))), Subject: uri}
	case 3:
		return v.completion(s, prefix)
	}
	t := pick(s, v.Tools)
	r := Request{Method: "tools/call", Params: []Member{named("name", s.spelled(prefix+t.Name)), named("arguments", t.input.value(s))}, Subject: prefix + t.Name}
	if s.one(60) {
		r.Params = append(r.Params, named("x-deep", s.nested(300+s.IntN(150))))
	}
	r.Params = append(r.Params, s.unknown(2, 3)...)
	return r
}

func (v *Server) completion(s Source, prefix string) Request {
	var ref []Member
	var subject string
	if s.one(2) {
		subject = prefix + pick(s, v.Prompts).Name
		ref = []Member{named("type", `"ref\/prompt"`), named("name", s.spelled(subject))}
	} else {
		subject = pick(s, v.Templates).Template
		ref = []Member{named("type", `"ref/resource"`), named("uri", s.spelled(subject))}
	}
	argument := s.object(append(s.unknown(1, 1), named("name", `"name"`), named("value", s.text())))
	params := append(s.unknown(2, 3), named("ref", s.object(append(ref, s.unknown(1, 1)...))), named("argument", argument))
	params = append(params, s.maybe("context", func() string { return s.object([]Member{named("arguments", s.strings([]string{"a"}))}) })...)
	return Request{Method: "completion/complete", Params: params, Subject: subject}
}

// strings is an object with a string under each name.
func (s Source) strings(names []string) string {
	var members []Member
	for _, n := range names {
		members = append(members, named(n, s.text()))
	}
	return s.object(members)
}

// Meta are members for a request's _meta that mean nothing to anybody but the server.
func (s Source) Meta() []Member {
	var list []Member
	for i := range s.IntN(3) {
		list = append(list, named(fmt.Sprintf("com.example/%d", i), s.value(3)))
	}
	return list
}

// ID is an id in one of its forms; n makes it unique.
func (s Source) ID(n int) string {
	switch s.IntN(4) {
	case 0:
		return fmt.Sprintf(`"id-%d"`, n)
	case 1:
		return fmt.Sprintf(`"\u0069\/%d é"`, n)
	case 2:
		return fmt.Sprintf("90071992547%06d", n)
	}
	return fmt.Sprint(n)
}

// Token is a progress token in one of its forms.
func (s Source) Token(n int) string {
	return pick(s, []string{fmt.Sprint(n), fmt.Sprintf(`"t\u006f%d"`, n), fmt.Sprintf("123456789012%06d", n)})
}
