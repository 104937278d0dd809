package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func secretAttacks() list {
	return list{
		{Name: "dump", Kind: "secrets", Target: "what to find, each octet XORed with 0x5a, in hexadecimal", inServer: true, try: dump},
	}
}

// dump looks for a secret in all that the server can read: its own memory, its files, and what the kernel tells of the
// processes that it sees. The target is veiled, for it would be found in this process otherwise.
func dump(target string) verdict {
	veiled, err := hex.DecodeString(target)
	if err != nil || len(veiled) < 8 {
		return impossible(fmt.Errorf("the target: %d octets, %v", len(veiled), err))
	}
	memory, err := searchMemory(veiled)
	if err != nil {
		return impossible(err)
	}
	if memory.found != "" {
		return succeeded("%s", memory.found)
	}
	files := searchFiles(veiled)
	if files.found != "" {
		return succeeded("%s", files.found)
	}
	return blocked("neither in %d octets of memory nor in %d octets of files", memory.read, files.read)
}

// hunt is what was found, and how much was looked at.
type hunt struct {
	found string
	read  int64
}

// look searches a stream for what is veiled, and never has it in the clear itself.
func (s *hunt) look(r io.Reader, veiled []byte, where string) {
	buffer := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := r.Read(buffer[kept:])
		s.read += int64(n)
		have := buffer[:kept+n]
		if contains(have, veiled) {
			s.found = where
			return
		}
		kept = copy(buffer, have[max(0, len(have)-len(veiled)+1):])
		if err != nil {
			return
		}
	}
}

// veil is what every octet of what is looked for is XORed with.
const veil = 0x5a

func contains(b, veiled []byte) bool {
	for {
		i := bytes.IndexByte(b, veiled[0]^veil)
		if i < 0 || len(b)-i < len(veiled) {
			return false
		}
		b = b[i:]
		k := 1
		for k < len(veiled) && b[k]^veil == veiled[k] {
			k++
		}
		if k == len(veiled) {
			return true
		}
		b = b[1:]
	}
}

// searchMemory looks through this process's memory.
func searchMemory(veiled []byte) (hunt, error) {
	var s hunt
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return s, err
	}
	defer maps.Close()
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return s, err
	}
	defer memory.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() && s.found == "" {
		span, rest, _ := strings.Cut(lines.Text(), " ")
		from, to, _ := strings.Cut(span, "-")
		first, err1 := strconv.ParseInt(from, 16, 64)
		last, err2 := strconv.ParseInt(to, 16, 64)
		if err1 != nil || err2 != nil || !strings.HasPrefix(rest, "r") || strings.Contains(rest, "[v") {
			continue
		}
		s.look(io.NewSectionReader(memory, first, last-first), veiled, "memory at "+span)
	}
	return s, lines.Err()
}

// searchFiles looks through all files that are not software of the host, and through what /proc says of every process.
func searchFiles(veiled []byte) hunt {
	var s hunt
	filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || s.found != "":
			return nil
		case d.IsDir() && (path == "/usr" || path == "/sys" || path == "/proc" || path == "/dev"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		s.lookFile(path, veiled)
		return nil
	})
	for _, name := range []string{"environ", "cmdline", "maps", "fd/*"} {
		paths, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, path := range paths {
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && s.found == "" {
				s.lookFile(path, veiled)
			}
		}
	}
	return s
}

func (s *hunt) lookFile(path string, veiled []byte) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	s.look(f, veiled, path)
}

// fetch is the tool that makes a request as the server's own code would, with all that it trusts.
func fetch(arguments json.RawMessage) (string, error) {
	var a struct {
		Method, URL, Body string
		Headers           map[string]string
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return "", err
	}
	q, err := http.NewRequest(a.Method, os.ExpandEnv(a.URL), strings.NewReader(os.ExpandEnv(a.Body)))
	if err != nil {
		return "", err
	}
	for name, value := range a.Headers {
		q.Header.Set(name, os.ExpandEnv(value))
	}
	client := &http.Client{Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := client.Do(q)
	if err != nil {
		return "", errors.New("fetching: " + err.Error())
	}
	defer r.Body.Close()
	var b strings.Builder
	fmt.Fprintln(&b, r.Proto, r.Status)
	r.Header.Write(&b)
	if _, err := io.Copy(&b, io.LimitReader(r.Body, 1<<20)); err != nil {
		return "", errors.New("fetching: " + err.Error())
	}
	r.Trailer.Write(&b)
	return b.String(), nil
}
