package main

import (
	"github.com/pfar/pfar/tests/corpus/shape"
)

// made is what is made up.
type made struct {
	*shape.Server
	srv *server
}

func (m made) info() (string, string) { return m.Info, m.Instructions }

func (m made) items(list string) []string {
	var items []string
	switch list {
	case "tools":
		for _, t := range m.Tools {
			items = append(items, t.Raw)
		}
	case "prompts":
		for _, p := range m.Prompts {
			items = append(items, p.Raw)
		}
	case "resources":
		for _, r := range m.Resources {
			items = append(items, r.Raw)
		}
	case "resourceTemplates":
		for _, r := range m.Templates {
			items = append(items, r.Raw)
		}
	}
	return items
}

func (m made) answer(q *request) {
	if q.token != "" {
		for _, params := range m.Progress(q.token, q.Name) {
			m.srv.notify("notifications/progress", params)
		}
	}
	m.srv.reply(q, m.Answer(q.Received, q.modern))
}

func (made) cancelled(string) {}
