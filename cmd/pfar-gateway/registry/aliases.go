package registry

import "github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"

// What callers need of a conversation, by the registry's name.
type (
	Agreement = protocol.Agreement
	Ask       = protocol.Ask
	Call      = protocol.Call
	Client    = protocol.Client
	Gone      = protocol.Gone
)

const (
	CodeBusy        = protocol.CodeBusy
	CodeUnavailable = protocol.CodeUnavailable
	MaxWatched      = protocol.MaxWatched
)
