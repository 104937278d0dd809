package runs

import "errors"

var (
	// ErrUnknown is of a run that there is not, or that whoever asks may not see.
	ErrUnknown = errors.New("no such run")
	// ErrFull is of one more run, or of more bytes, than there is place for.
	ErrFull = errors.New("no room for the run")
	// ErrState is of what cannot be done with a run as it stands.
	ErrState = errors.New("the run is in another state")
	// ErrClosed is of a Runner that has been closed.
	ErrClosed = errors.New("the gateway is ending")
)

// Who asks about runs. The zero value sees none.
type Who struct {
	Client, Session string
	Operator        bool // he sees the runs of all clients
}

func (w Who) sees(client, session string) bool {
	return w.Operator || w.Client != "" && w.Client == client && w.Session == session
}
