package journal

import (
	"io"
	"sync"
)

// Counted passes on what is written, and tells whenever it was so many bytes more: a log that is a file is to be
// rotated then.
type Counted struct {
	To    io.Writer
	Every int // bytes
	Full  func()

	mu sync.Mutex
	n  int
}

func (c *Counted) Write(b []byte) (int, error) {
	n, err := c.To.Write(b)
	c.mu.Lock()
	c.n += n
	full := c.n >= c.Every
	if full {
		c.n = 0
	}
	c.mu.Unlock()
	if full {
		c.Full()
	}
	return n, err
}
