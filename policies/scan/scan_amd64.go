package scan

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// wide reports whether there are instructions for 32 bytes at a time.
var wide = cpu.X86.HasAVX2

// members marks as many whole blocks of the text as dst has words.
func (s *Set) members(dst []uint64, text string) {
	if !wide || s.mixed || len(dst) == 0 {
		s.membersOf(dst, text)
		return
	}
	_ = text[len(dst)*Block-1]
	markMembers(&s.rows, s.beyond, unsafe.StringData(text), len(dst), &dst[0])
}

// begin marks as many whole blocks of the text as dst has words; behind them is as much of it as is looked at of a
// word.
func (w *Words) begin(dst []uint64, text string) {
	if !wide || len(dst) == 0 {
		anywhere(dst)
		return
	}
	_ = text[len(dst)*Block+reach-2]
	markWords(&w.tables, unsafe.StringData(text), len(dst), &dst[0])
}

//go:noescape
func markMembers(rows *[16]byte, beyond uint32, text *byte, blocks int, dst *uint64)

//go:noescape
func markWords(tables *[reach][32]byte, text *byte, blocks int, dst *uint64)
