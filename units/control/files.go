package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/packet"
)

// maxAttached bounds an answer that files are attached to, in bytes, so that one write takes it.
const maxAttached = 4 << 10

// sendFiles sends a response with its files attached.
func sendFiles(c *net.UnixConn, r Response) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) >= maxAttached {
		return fmt.Errorf("answering with files: %d bytes, more than %d", len(b), maxAttached)
	}
	rights, err := packet.Rights(r.Files)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	n, _, err := c.WriteMsgUnix(b, rights, nil)
	if err == nil && n < len(b) {
		err = fmt.Errorf("answering with files: sent %d bytes of %d", n, len(b))
	}
	return err
}

// Audit has pfard open the gateway's audit file: to append, to read, and the one before it to read, if there is one.
// The caller closes them.
func (c Client) Audit(ctx context.Context) ([]*os.File, error) {
	conn, err := Dial(ctx, c.Path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	asking := json.NewEncoder(conn).Encode(Request{Verb: Audit})
	files, text, err := receiveFiles(conn)
	var r Response
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	switch {
	case err != nil && asking != nil:
		err = asking
	case err == nil && r.Error != "":
		packet.CloseAll(files)
		return nil, r.refused()
	case err == nil && (len(files) < 2 || len(files) > 3):
		err = fmt.Errorf("%d files are attached", len(files))
	}
	if err != nil {
		packet.CloseAll(files)
		return nil, cause(ctx, fmt.Errorf("asking pfard for the audit file: %w", err))
	}
	return files, nil
}

// receiveFiles reads one line and what is attached to it.
func receiveFiles(c *net.UnixConn) (files []*os.File, line []byte, err error) {
	b, oob := make([]byte, maxAttached), make([]byte, unix.CmsgSpace(4*packet.MaxFiles))
	for len(line) < 4*maxAttached {
		n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
		if oobn > 0 {
			more, rerr := packet.Received(oob[:oobn])
			if files = append(files, more...); rerr != nil {
				return files, nil, rerr
			}
		}
		line = append(line, b[:n]...)
		if text, _, ended := bytes.Cut(line, []byte{'\n'}); ended {
			return files, text, nil
		}
		if err != nil {
			return files, nil, err
		}
	}
	return files, nil, fmt.Errorf("an answer of more than %d bytes", len(line))
}
