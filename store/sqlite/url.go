package sqlite

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
)

const scheme = "sqlite:"

// ParseURL returns the path in a URL. The path may be relative.
//
//	sqlite:                 the default file in the home directory of the user
//	sqlite:jobs.db          a file in the working directory
//	sqlite:/var/lib/jobs.db
//	sqlite:///var/lib/a%20b.db
//
// % encodes a byte only in the form with //. In the other forms every character is part of the name, except ? and #,
// which ParseURL refuses. Every error is an ErrInvalid.
func ParseURL(address string) (path string, err error) {
	return environment{os.Getenv, os.UserHomeDir, runtime.GOOS}.parse(address)
}

// environment is the data that determines the default path.
type environment struct {
	variable func(string) string
	home     func() (string, error)
	system   string
}

func (e environment) parse(address string) (string, error) {
	if len(address) < len(scheme) || !strings.EqualFold(address[:len(scheme)], scheme) {
		return "", fmt.Errorf("%w: the URL %.100q does not begin with %s", holdfast.ErrInvalid, address, scheme)
	}
	rest := address[len(scheme):]
	var err error
	switch {
	case rest == "":
		return e.defaultPath()
	case strings.HasPrefix(rest, "//"):
		rest, err = hierarchical(address)
	case strings.ContainsAny(rest, "?#"):
		err = fmt.Errorf("%w: the URL %.100q has ? or #, but a database file takes no parameters; if they are part of its name, write sqlite:///path with %%3F or %%23", holdfast.ErrInvalid, address)
	}
	if err == nil {
		err = checkPath(address, rest)
	}
	if err != nil {
		return "", err
	}
	return rest, nil
}

// hierarchical returns the path of a URL in the form with //.
func hierarchical(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("%w: the URL %.100q: write %% as %%25", holdfast.ErrInvalid, address)
	}
	switch {
	case u.Host != "" || u.User != nil:
		return "", fmt.Errorf("%w: the URL %.100q names the host %q, but the file is on this machine; write sqlite:///absolute/path or sqlite:relative/path", holdfast.ErrInvalid, address, u.Host)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(address, "#"):
		return "", fmt.Errorf("%w: the URL %.100q has parameters or a fragment, but a database file takes none; if they are part of its name, write %%3F and %%23", holdfast.ErrInvalid, address)
	}
	return u.Path, nil
}

// checkPath returns an ErrInvalid for a path that is probably a mistake.
func checkPath(address, path string) error {
	switch {
	case path == "":
		return fmt.Errorf("%w: the URL %.100q names no file; write sqlite:/path/to/holdfast.db, or sqlite: for the default one", holdfast.ErrInvalid, address)
	case strings.Contains(path, ":memory:"):
		return fmt.Errorf("%w: the URL %.100q keeps nothing: tasks in memory are lost with their process; name a file", holdfast.ErrInvalid, address)
	case len(path) >= len("file:") && strings.EqualFold(path[:len("file:")], "file:"):
		return fmt.Errorf("%w: the URL %.100q has two schemes; write sqlite:/path/to/holdfast.db", holdfast.ErrInvalid, address)
	case strings.HasSuffix(path, "/"):
		return fmt.Errorf("%w: the URL %.100q names a folder; add the name of a file", holdfast.ErrInvalid, address)
	case strings.HasPrefix(path, "~"):
		return fmt.Errorf("%w: the URL %.100q begins with ~, which is not expanded; write the path in full", holdfast.ErrInvalid, address)
	case strings.ContainsRune(path, 0) || !utf8.ValidString(path):
		return fmt.Errorf("%w: the path in the URL %.100q is not plain UTF-8 text", holdfast.ErrInvalid, address)
	}
	return nil
}

// defaultPath returns the path of the default file.
func (e environment) defaultPath() (string, error) {
	const name = "holdfast.db"
	if data := e.variable("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "holdfast", name), nil
	}
	if e.system == "windows" {
		if data := e.variable("LocalAppData"); data != "" {
			return filepath.Join(data, "holdfast", name), nil
		}
	}
	home, err := e.home()
	if err != nil || !filepath.IsAbs(home) {
		return "", holdfast.WithHint(fmt.Errorf("%w: the default database needs a home directory, but this user has none", holdfast.ErrInvalid), anotherFile)
	}
	return filepath.Join(home, ".local", "share", "holdfast", name), nil
}
