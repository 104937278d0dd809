package main

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxChunkLine bounds the line of a chunk's size: 15 digits and CR LF.
const maxChunkLine = 17

var errChunk = errors.New("chunked body is not of the form SIZE CR LF DATA CR LF, or has extensions or trailers")

// bufferedReader is a *bufio.Reader or a *headReader.
type bufferedReader interface {
	io.Reader
	io.ByteReader
	Buffered() int
}

// copyChunked passes a chunked body on, written anew: where the origin sees it end is where this proxy saw it end.
// Chunk extensions and trailers are refused; hardly a client sends them, and parsers disagree on them.
func copyChunked(dst io.Writer, src bufferedReader) (int64, error) {
	w := bufio.NewWriterSize(dst, 4096)
	var total int64
	for {
		size, err := readChunkSize(src)
		if err != nil {
			return total, err
		}
		if _, err := w.WriteString(strconv.FormatInt(size, 16) + "\r\n"); err != nil {
			return total, err
		}
		if size > 0 {
			n, err := io.CopyN(w, src, size)
			total += n
			if err != nil {
				return total, err
			}
		}
		if err := readLineEnd(src); err != nil {
			return total, err
		}
		if _, err := w.WriteString("\r\n"); err != nil {
			return total, err
		}
		if size == 0 {
			return total, w.Flush()
		}
		if src.Buffered() == 0 { // the next read may wait: what there is goes out
			if err := w.Flush(); err != nil {
				return total, err
			}
		}
	}
}

func readChunkSize(src io.ByteReader) (int64, error) {
	var line []byte
	for len(line) < maxChunkLine {
		c, err := src.ReadByte()
		if err != nil {
			return 0, unexpected(err)
		}
		line = append(line, c)
		if c == '\n' {
			break
		}
	}
	digits, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok || digits == "" || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return 0, errChunk
	}
	size, err := strconv.ParseInt(digits, 16, 64)
	if err != nil {
		return 0, errChunk
	}
	return size, nil
}

func readLineEnd(src io.ByteReader) error {
	for _, want := range []byte("\r\n") {
		c, err := src.ReadByte()
		if err != nil {
			return unexpected(err)
		}
		if c != want {
			return errChunk
		}
	}
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
