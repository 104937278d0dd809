package vm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
)

// Writes are all writes to a disk, in order, as QEMU's block driver blklogwrites notes them: in the format of the
// kernel's dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst).
type Writes struct {
	log   *os.File
	list  []write
	marks map[string]int // how many writes there were with the mark
}

// write is one write: where to, and where the log has its bytes.
type write struct{ to, from, size int64 }

const (
	logMagic   = 0x6a736677736872
	logSector  = 512 // blklogwrites' own, and that of the machine's disk
	logDiscard = 4   // the write has no bytes

	block      = 4096 // of the file system
	markPrefix = "pfar-vm-mark:"
)

// Mark is a block of the disk that a payload writes where the test may cut the power.
func Mark(name string) []byte {
	return append([]byte(markPrefix+name+"\n"), make([]byte, block-len(markPrefix+name)-1)...)
}

// Digest tells files apart. An emulated processor takes seconds for a cryptographic one of some megabytes.
func Digest() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

// OpenWrites reads the log of a boot that has ended, Boot.Log.
func OpenWrites(path string) (*Writes, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	w := &Writes{log: f, marks: map[string]int{}}
	if err := w.read(); err != nil {
		return nil, fmt.Errorf("reading the log of the disk: %w", errors.Join(err, f.Close()))
	}
	return w, nil
}

func (w *Writes) Close() error { return w.log.Close() }

func (w *Writes) read() error {
	number := binary.LittleEndian.Uint64
	header := make([]byte, 32)
	if _, err := w.log.ReadAt(header, 0); err != nil {
		return err
	}
	entries, sector := number(header[16:]), binary.LittleEndian.Uint32(header[24:])
	if number(header) != logMagic || sector != logSector {
		return fmt.Errorf("it begins with %x", header)
	}
	at := int64(logSector)
	for range entries {
		if _, err := w.log.ReadAt(header, at); err != nil {
			return err
		}
		at += logSector
		next := write{int64(number(header)) * logSector, at, int64(number(header[8:])) * logSector}
		if number(header[16:])&logDiscard != 0 || next.size == 0 { // a flush
			continue
		}
		w.list = append(w.list, next)
		if err := w.find(next); err != nil {
			return err
		}
		at += next.size
	}
	return nil
}

// find notes the marks in a write.
func (w *Writes) find(next write) error {
	b := make([]byte, next.size)
	if _, err := w.log.ReadAt(b, next.from); err != nil {
		return err
	}
	for ; len(b) >= block; b = b[block:] {
		text, is := bytes.CutPrefix(b[:block], []byte(markPrefix))
		if name, _, whole := bytes.Cut(text, []byte("\n")); is && whole {
			w.marks[string(name)] = len(w.list)
		}
	}
	return nil
}

// Cut makes a disk, below dir, as it was when the power was cut at a mark: it has each write up to the mark and none
// of those that followed. What no program had synced by then was in the machine's memory.
func (w *Writes) Cut(ctx context.Context, m *Machine, dir, mark string) (string, error) {
	n := w.marks[mark]
	if n == 0 {
		return "", fmt.Errorf("cutting the power: %d writes have no mark %q", len(w.list), mark)
	}
	disk, err := m.Disk(ctx, dir)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, next := range w.list[:n] {
		if _, err := io.Copy(io.NewOffsetWriter(f, next.to), io.NewSectionReader(w.log, next.from, next.size)); err != nil {
			return "", fmt.Errorf("cutting the power: %w", err)
		}
	}
	return disk, nil
}
