package chat

// Deletions are the records of the messages to delete.
type Deletions struct{ kept[record] }

// record is a message to delete.
type record struct {
	ID   string `json:"id"`
	Room string `json:"room"`
	From string `json:"from"`
	Told bool   `json:"told,omitempty"` // the owner knows that it could not be deleted
}

func toDelete(m Message) record { return record{ID: m.ID, Room: m.Room, From: m.From} }

func (r record) message() Message { return Message{ID: r.ID, Room: r.Room, From: r.From} }

func (r record) name() string { return digest(r.Room, r.ID) }

func (r record) in() string { return r.Room }

// OpenDeletions opens the directory, and makes it if it is missing. Only its owner may look into it.
func OpenDeletions(dir string) (Deletions, error) {
	d, err := openKept[record](dir, "deletions")
	return Deletions{d}, err
}

// add records that a message is to be deleted. The record is on the disk when add returns.
func (d Deletions) add(m Message) error { return d.write(toDelete(m)) }

// told records that the owner knows that the message could not be deleted.
func (d Deletions) told(m Message) error {
	r := toDelete(m)
	r.Told = true
	return d.write(r)
}

// has reports whether a message is to be deleted. It reports true if it cannot find out.
func (d Deletions) has(m Message) bool { return d.kept.has(toDelete(m)) }

// done removes the record of a message.
func (d Deletions) done(m Message) error { return d.kept.done(toDelete(m)) }
