package main

import (
	"errors"
	"os"

	"github.com/pfar/pfar/tests/internet"
)

// makeCertificate writes an authority's certificate, and one by it with its key for the target.
func makeCertificate(authority, certificate string) error {
	ca, leaf, err := internet.Certificates("load.example")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(authority, ca, 0o644), os.WriteFile(certificate, leaf, 0o600))
}
