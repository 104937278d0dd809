package main

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/pfar/pfar/generator/catalog"
)

// services is what is known of services. It is read again when the operator's folder has changed.
type services struct {
	dir  string
	open func(dir string) fs.FS

	mu    sync.Mutex
	stamp string // of the folder when it was read
	set   *catalog.Set
}

func (s *services) now() catalog.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stamp := stampOf(s.dir); s.set == nil || stamp != s.stamp {
		s.stamp, s.set = stamp, new(catalog.Load(s.open(s.dir), s.dir))
	}
	return *s.set
}

// stampOf changes when a file of a folder does.
func stampOf(dir string) string {
	entries, _ := os.ReadDir(dir) // without it there is none
	var b strings.Builder
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			fmt.Fprintln(&b, e.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}
