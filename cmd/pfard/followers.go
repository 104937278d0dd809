package main

// followers are woken when something has changed. One who is slow is woken once. They belong to the loop.
type followers struct {
	inbox
	all map[chan struct{}]bool
}

// follow returns a channel with a message after each change, until leave is called.
func (f *followers) follow() (changed <-chan struct{}, leave func(), err error) {
	wake := make(chan struct{}, 1)
	err = f.do(func() error { f.all[wake] = true; return nil })
	return wake, func() { _ = f.do(func() error { delete(f.all, wake); return nil }) }, err
}

func (f *followers) tell() {
	for wake := range f.all {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}
