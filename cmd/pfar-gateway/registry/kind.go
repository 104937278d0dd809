package registry

import (
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
)

// Kind is one of the lists that a server may have.
type Kind int

const (
	Tools Kind = iota
	Prompts
	Resources
	Templates
)

// Kinds is a set of them, a bit each.
type Kinds uint8

// AllKinds is every kind there is.
const AllKinds Kinds = 1<<(Templates+1) - 1

// Set returns the set of k alone.
func (k Kind) Set() Kinds { return 1 << k }

// Has reports whether k is in the set.
func (s Kinds) Has(k Kind) bool { return s&k.Set() != 0 }

// form says how the protocol speaks of a kind.
type form struct {
	kind       Kind
	method     string // that lists it
	member     string // of the result
	key        string // that identifies an item
	capability string // that a server needs to be asked
	changed    string // notification
}

func (k Kind) form() form {
	switch k {
	case Tools:
		return form{Tools, string(mcp.MethodToolsList), "tools", "name", "tools", mcp.MethodNotificationToolsListChanged}
	case Prompts:
		return form{Prompts, string(mcp.MethodPromptsList), "prompts", "name", "prompts", mcp.MethodNotificationPromptsListChanged}
	case Resources:
		return form{Resources, string(mcp.MethodResourcesList), "resources", "uri", "resources", mcp.MethodNotificationResourcesListChanged}
	}
	return form{Templates, string(mcp.MethodResourcesTemplatesList), "resourceTemplates", "uriTemplate", "resources",
		mcp.MethodNotificationResourcesListChanged}
}

// changedBy returns what a notification says has changed.
func changedBy(method string) Kinds {
	var s Kinds
	for k := Tools; k <= Templates; k++ {
		if method == k.form().changed {
			s |= k.Set()
		}
	}
	return s
}

// Notifications returns what clients are told when the kinds change.
func (s Kinds) Notifications() []string {
	var list []string
	for k := Tools; k <= Templates; k++ {
		if n := k.form().changed; s.Has(k) && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}
