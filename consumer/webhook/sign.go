package webhook

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/hosts"
)

// Limits of the length of a signing key in bytes, from the Standard Webhooks specification.
const (
	minKey = 24
	maxKey = 64
)

// secret is a validated Secret.
type secret struct {
	name  string
	keys  []*standardwebhooks.Webhook
	hosts []hosts.Pattern
}

func newSecrets(named map[string]Secret) (map[string]*secret, error) {
	secrets := make(map[string]*secret, len(named))
	for name, given := range named {
		if name == "" || len(given.Hosts) == 0 {
			return nil, fmt.Errorf("%w: webhook: the secret %.100q has no name or no hosts", holdfast.ErrInvalid, name)
		}
		s := &secret{name: name}
		for _, text := range given.Hosts {
			pattern, err := hosts.Parse(text)
			if err != nil {
				return nil, fmt.Errorf("%w: webhook: the host %.100q of the secret %.100q %w", holdfast.ErrInvalid, text, name, err)
			}
			s.hosts = append(s.hosts, pattern)
		}
		for _, key := range given.Keys {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
			if err != nil || len(raw) < minKey || len(raw) > maxKey { // err could contain a part of the key
				return nil, fmt.Errorf("%w: webhook: a key of the secret %.100q is not whsec_ and the base64 of %d to %d bytes",
					holdfast.ErrInvalid, name, minKey, maxKey)
			}
			signer, err := standardwebhooks.NewWebhookRaw(raw)
			if err != nil {
				return nil, fmt.Errorf("webhook: secret %.100q: %w", name, err)
			}
			s.keys = append(s.keys, signer)
		}
		secrets[name] = s
	}
	return secrets, nil
}

// checkTarget returns holdfast.ErrInvalid if the secret may not sign requests to the host of the URL.
func (s *secret) checkTarget(u *url.URL) error {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if slices.ContainsFunc(s.hosts, func(p hosts.Pattern) bool { return p.Match(u.Hostname(), port) }) {
		return nil
	}
	err := fmt.Errorf("%w: the webhook secret %q may not sign requests to %.300s, which is not one of its hosts",
		holdfast.ErrInvalid, s.name, net.JoinHostPort(u.Hostname(), port))
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintAllowHost, Arg: s.name})
}

// sign sets the headers that identify and sign the delivery.
func sign(header http.Header, task holdfast.Task, body []byte, keys []*standardwebhooks.Webhook, now time.Time) error {
	id := task.IdempotencyKey()
	if id == "" {
		return fmt.Errorf("%w: sign request: the task has no idempotency key", holdfast.ErrInvalid)
	}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(AttemptHeader, strconv.Itoa(task.Attempt))
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signature, err := key.Sign(id, now, body)
		if err != nil {
			return fmt.Errorf("sign request: %w", err)
		}
		signatures[i] = signature
	}
	if len(signatures) > 0 {
		header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	return nil
}
