package configs

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/hosts"
	"github.com/holdfastq/holdfast/internal/serverurl"
)

// Each rule below checks one value. Its error does not contain the value, which may be a secret.

// databaseURL checks that the text after sqlite: is not another URL. The store checks the rest when it opens the file.
func databaseURL(text string) error {
	const like = "postgres://user:password@host:5432/name or sqlite:/path/to/file.db"
	if path, ok := strings.CutPrefix(text, EmbeddedDatabase); ok {
		if strings.Contains(path, "://") {
			return errors.New("is not one URL like " + like)
		}
		return nil
	}
	return serverurl.CheckPostgres(text, like)
}

func directURL(text string) error {
	return serverurl.CheckPostgres(text, "postgres://user:password@host:5432/name")
}

func amqpURL(text string) error {
	if text == EmbeddedBroker {
		return nil
	}
	return serverurl.Check(text, "amqp://user:password@host:5672/vhost", "amqp", "amqps")
}

func notifyURL(text string) error {
	return serverurl.CheckTarget(text, "https://example.com/hooks/holdfast", "http", "https")
}

// lazily returns a function that compiles a pattern at its first call. Every command has this package, and few use every
// pattern.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

var (
	identifierForm = lazily(`^[a-z_][a-z0-9_]{0,62}$`)
	prefixForm     = lazily(`^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$`)
	secretForm     = lazily(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
	headerForm     = lazily(`^[A-Za-z0-9][A-Za-z0-9-]{0,79}$`)
	statusForm     = lazily(`^[1-5](xx|[0-9][0-9])$`)
)

func identifier(text string) error {
	if !identifierForm().MatchString(text) || strings.HasPrefix(text, "pg_") {
		return errors.New("is not at most 63 lower-case letters, digits and _, or it begins with a digit or pg_")
	}
	return nil
}

func queuePrefix(text string) error {
	if !prefixForm().MatchString(text) || strings.HasPrefix(text, "amq.") {
		return errors.New("is not at most 80 letters, digits and . _ -, or it begins with amq and a dot")
	}
	return nil
}

func oneOf[T ~string](allowed ...T) func(T) error {
	return func(value T) error {
		if slices.Contains(allowed, value) {
			return nil
		}
		texts := make([]string, len(allowed))
		for i, one := range allowed {
			texts[i] = string(one)
		}
		last := len(texts) - 1
		return fmt.Errorf("must be %s or %s", strings.Join(texts[:last], ", "), texts[last])
	}
}

func listenAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return errors.New("is not an address like 127.0.0.1:8480 or :8480")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("must end in a port from 0 to 65535")
	}
	return nil
}

// headerName refuses headers that the HTTP API uses itself.
func headerName(text string) error {
	ours := func(header string) bool { return strings.EqualFold(header, text) }
	if !headerForm().MatchString(text) || slices.ContainsFunc([]string{"Authorization", "Cookie", "Host"}, ours) {
		return errors.New("is not the name of a header like X-Forwarded-User")
	}
	return nil
}

var pathForm = lazily(`^(/[A-Za-z0-9._~-]+)+$`)

func pathPrefix(text string) error {
	if !pathForm().MatchString(text) || strings.Contains(text, "/.") {
		return errors.New("is not a path such as /holdfast, without a slash at its end")
	}
	return nil
}

func queue(text string) error {
	if text == "" || (holdfast.NewTask{Type: "any", Queue: text}).Validate(0) != nil {
		return fmt.Errorf("must be 1 to %d lower-case letters, digits, _ or -", holdfast.MaxNameLength)
	}
	return nil
}

func taskType(text string) error {
	if (holdfast.NewTask{Type: text}).Validate(0) != nil {
		return fmt.Errorf("must be 1 to %d letters, digits or . _ : / -", holdfast.MaxNameLength)
	}
	return nil
}

func workerName(text string) error {
	if len(text) > 200 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '\ufffd' }) {
		return errors.New("must be at most 200 bytes of printable text")
	}
	return nil
}

func status(text string) error {
	if !statusForm().MatchString(text) {
		return errors.New("is not an HTTP status like 429 or a class like 5xx")
	}
	return nil
}

type prefix = netip.Prefix

// network is a CIDR block. A single address is a block with one address.
func network() codec[prefix] {
	return codec[prefix]{
		read: func(s string) (prefix, error) {
			if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
				return netip.PrefixFrom(addr, addr.BitLen()), nil
			}
			block, err := netip.ParsePrefix(s)
			if err != nil {
				return prefix{}, errors.New("is not a network like 10.1.0.0/16 or fd00::/8")
			}
			return block.Masked(), nil
		},
		write: prefix.String,
	}
}

// Limits of the length of a signing key in bytes, from the Standard Webhooks specification.
const (
	minSecret = 24
	maxSecret = 64
)

// secretKeys is the value of one secret: a list of keys, or text with keys separated by spaces or commas.
type secretKeys struct {
	in   map[string][]string
	name string
}

func (s *secretKeys) set(raw any) error {
	items, err := list(raw)
	if err != nil {
		return err
	}
	s.in[s.name] = strings.Fields(strings.Join(items, " "))
	return nil
}

func (s *secretKeys) text() string { return strings.Join(s.in[s.name], " ") }

func (s *secretKeys) check() error {
	if err := checkSecretName(s.name); err != nil {
		return wrong("", "%s", err)
	}
	if len(s.in[s.name]) == 0 {
		return wrong("", "is empty")
	}
	for _, key := range s.in[s.name] {
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
		if err != nil || len(decoded) < minSecret || len(decoded) > maxSecret {
			return wrong("", "is not whsec_ and the base64 of %d to %d bytes", minSecret, maxSecret)
		}
	}
	return nil
}

// secretHost checks a host to which a secret may sign requests.
func secretHost(text string) error {
	_, err := hosts.Parse(text)
	return err
}

func checkSecretName(name string) error {
	if !secretForm().MatchString(name) || strings.HasSuffix(variable(name), fileSuffix) {
		return errors.New("has a name that is not at most 100 letters, digits, _ and -, or that ends in _file")
	}
	return nil
}
