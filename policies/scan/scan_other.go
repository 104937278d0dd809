//go:build !amd64

package scan

var wide bool // for the tests

func (s *Set) members(dst []uint64, text string) { s.membersOf(dst, text) }
func (w *Words) begin(dst []uint64, text string) { anywhere(dst) }
