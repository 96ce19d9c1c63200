package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Config has the logins of a docker config, by registry.
type Config map[string]Credential

// ParseConfigJSON parses a docker config.json, also a Secret's .dockerconfigjson. It leaves out
// invalid entries and names them in the error, which quotes nothing of the content. A nil Config
// means that the data is no such file.
func ParseConfigJSON(data []byte) (Config, error) {
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, quiet(err)
	}
	if file.Auths == nil {
		return nil, errors.New(`it has no "auths"`)
	}
	return parseEntries(file.Auths)
}

// ParseDockercfg parses the older .dockercfg, which is the part of config.json under "auths".
func ParseDockercfg(data []byte) (Config, error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, quiet(err)
	}
	if entries == nil {
		return nil, errors.New("it is empty")
	}
	return parseEntries(entries)
}

func parseEntries(entries map[string]json.RawMessage) (Config, error) {
	config := make(Config, len(entries))
	var errs []error
	for _, registry := range slices.Sorted(maps.Keys(entries)) {
		c, err := parseEntry(entries[registry])
		if err != nil {
			errs = append(errs, fmt.Errorf("the entry of %q: %w", registry, err))
			continue
		}
		config[registry] = c
	}
	return config, errors.Join(errs...)
}

// parseEntry parses one login. An auth field, which is base64 of user:password, overrides the two
// fields.
func parseEntry(data []byte) (Credential, error) {
	var in struct {
		Username      string `json:"username"`
		Password      string `json:"password"`
		Email         string `json:"email"`
		Auth          string `json:"auth"`
		IdentityToken string `json:"identitytoken"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return Credential{}, quiet(err)
	}
	if in.Auth != "" {
		// Some tools write padding, and some do not.
		decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(in.Auth), "="))
		if err != nil {
			return Credential{}, errors.New("its auth is not base64")
		}
		user, password, ok := strings.Cut(string(decoded), ":")
		if !ok {
			return Credential{}, errors.New("its auth is not user:password in base64")
		}
		// On some systems Docker writes a NUL at the end.
		in.Username, in.Password = user, strings.Trim(password, "\x00")
	}
	return Credential{
		Username:      NewSecret(in.Username),
		Password:      NewSecret(in.Password),
		Email:         NewSecret(in.Email),
		IdentityToken: NewSecret(in.IdentityToken),
	}, nil
}

// quiet returns what is wrong with JSON without quoting any of it.
func quiet(err error) error {
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("it is not valid JSON, from byte %d on", syntax.Offset)
	}
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
		return fmt.Errorf("it has JSON of the wrong type at byte %d", kind.Offset)
	}
	return errors.New("it is not valid JSON")
}
