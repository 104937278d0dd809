package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units"
)

// delivery makes of the credentials that a plan names what the processes of its server get.
type delivery struct {
	vault interface {
		Get(key string) ([]byte, error) // an error that notFound knows, if there is none
		Seed() ([]byte, error)
	}
	learn func(name string, value []byte) // is called with each value before anybody gets it
}

// secrets is what the launcher gets: the values, but of a brokered one the placeholder. The error is about what is there and
// cannot be used.
func (d delivery) secrets(p generator.Plan) (units.Secrets, error) {
	s := units.Secrets{Values: map[string][]byte{}}
	for _, c := range p.Credentials {
		value, missing, err := d.value(c)
		if err != nil {
			return units.Secrets{}, err
		}
		if missing != "" {
			s.Missing = append(s.Missing, missing)
			continue
		}
		if c.Deliver == declaration.Brokered {
			if value, err = d.placeholder(p.Name, c, value); err != nil {
				return units.Secrets{}, err
			}
			if s.Authority, err = d.certificate(p.Name); err != nil {
				return units.Secrets{}, err
			}
		}
		s.Values[c.Name] = value
	}
	if len(s.Missing) > 0 {
		return units.Secrets{Missing: s.Missing}, nil
	}
	return s, nil
}

// material is what the bridge gets; nil if nothing of the server's is brokered. What is missing or cannot be
// brokered is left out: the bridge refuses what it would be needed for.
func (d delivery) material(p generator.Plan) (*broker.Material, error) {
	var m *broker.Material
	for _, c := range p.Credentials {
		if c.Deliver != declaration.Brokered {
			continue
		}
		if m == nil {
			seed, err := d.vault.Seed()
			if err != nil {
				return nil, err
			}
			m = new(broker.Material)
			if m.Authority, err = broker.NewAuthority(seed, p.Name); err != nil {
				return nil, err
			}
		}
		value, missing, err := d.value(c)
		if err != nil {
			return nil, err
		}
		if missing != "" {
			continue
		}
		placeholder, err := d.placeholder(p.Name, c, value)
		if errors.Is(err, broker.ErrUnfit) {
			continue // the launcher says so when it starts; the others go on
		}
		if err != nil {
			return nil, err
		}
		m.Secrets = append(m.Secrets, broker.Secret{
			Name: c.Name, Placeholder: string(placeholder), Value: string(value), Hosts: c.Hosts, Places: c.Places,
		})
	}
	return m, nil
}

// brokered is the material in JSON, as attach.Message.Broker has it; nil if nothing of the server's is brokered.
func (d delivery) brokered(p generator.Plan) (*os.File, error) {
	m, err := d.material(p)
	if err != nil || m == nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return units.Sealed("broker", b)
}

// value resolves one credential, or says in words what is missing.
func (d delivery) value(c generator.Credential) (value []byte, missing string, err error) {
	if c.From != "" {
		v := os.Getenv(c.From)
		if v == "" {
			return nil, fmt.Sprintf("%s: set the environment variable %s for pfar", c.Name, c.From), nil
		}
		d.learn(secretName(c), []byte(v))
		return []byte(v), "", nil
	}
	value, err = d.vault.Get(c.Key)
	words, waits := errors.AsType[awaited](err)
	switch {
	case waits:
		return nil, c.Name + ": " + string(words), nil
	case notFound(err):
		return nil, fmt.Sprintf("%s: pfar vault set %s", c.Name, c.Key), nil
	case err == nil:
		d.learn(secretName(c), value)
	}
	return value, "", err
}

func (d delivery) placeholder(server string, c generator.Credential, value []byte) ([]byte, error) {
	seed, err := d.vault.Seed()
	if err != nil {
		return nil, err
	}
	p, err := broker.Placeholder(seed, server+"/"+c.Name, string(value))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return []byte(p), nil
}

func (d delivery) certificate(server string) ([]byte, error) {
	seed, err := d.vault.Seed()
	if err != nil {
		return nil, err
	}
	a, err := broker.NewAuthority(seed, server)
	if err != nil {
		return nil, err
	}
	text, _, _, err := a.Certificate()
	return text, err
}
