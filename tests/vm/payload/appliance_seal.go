package main

import (
	"errors"
	"fmt"
	"strings"
)

const sealedKey = "/etc/credstore.encrypted/pfar-vault-key"

func openKey() (string, error) {
	return output("systemd-creds", "decrypt", "--name=pfar-vault-key", sealedKey, "-")
}

// keyOpens wants the key of the vault, which systemd has sealed to the TPM without being told to.
func keyOpens() (string, error) {
	out, err := openKey()
	return "", errors.Join(err, contains(out, "AGE-SECRET-KEY-"))
}

func keyStaysShut() (string, error) {
	out, err := openKey()
	if err == nil || strings.Contains(out, "AGE-SECRET-KEY-") {
		return "", errors.New("the key is open")
	}
	return strings.TrimSpace(out), nil
}

// shutOut wants no pfard without the key: it would hold an empty vault for the one there is.
func shutOut() (string, error) {
	if _, err := output("systemctl", "start", "pfard.service"); err == nil {
		return "", errors.New("pfard has started")
	}
	out, err := output("systemctl", "status", "--no-pager", "pfard.service")
	if !strings.Contains(out, "243/CREDENTIALS") {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return "", nil
}
