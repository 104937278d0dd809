package pins

import (
	"encoding/json"
	"slices"
	"time"
)

// Program says whether a server's program may be started, by a fingerprint of it as in an Offer: unless it is Accepted,
// it may not. One that has changed by itself is held from then on, as Review has it. What Review accepts, Program
// leaves to it.
func (s *Store) Program(server, command string, fingerprint json.RawMessage) State {
	k := s.known(server, false)
	if k == nil {
		return Accepted // there is nothing to compare with
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.broken != nil:
		return New
	case k.file == nil:
		return Accepted
	}
	next, state := k.file.judgeProgram(word(command), fingerprint, s.now().UTC().Truncate(time.Second), s.room)
	if next != nil {
		_ = s.keep(k, server, next, true) // which says why it could not be written
	}
	return state
}

// judgeProgram returns the file as it is to be, nil if nothing of it changes, and what becomes of the program.
func (f *file) judgeProgram(command string, fingerprint json.RawMessage, now time.Time, left room) (*file, State) {
	i := slices.IndexFunc(f.Pins, func(p pinned) bool { return p.Kind == Program })
	if i < 0 {
		return nil, Accepted
	}
	for _, p := range f.Pins {
		left.take(1, p.overhead()+len(p.Raw)+len(p.Held))
	}
	was := f.Pins[i]
	p := was
	state, _ := p.judge(Definition{Program, string(Program), fingerprint}, &Offer{Program: command}, false, now, &left)
	if !was.differs(&p) || state == Accepted && p.Digest != was.Digest {
		return nil, state
	}
	next := *f
	next.Program, next.Pins = command, slices.Clone(f.Pins)
	next.Pins[i] = p
	return &next, state
}
