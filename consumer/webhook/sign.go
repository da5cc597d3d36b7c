package webhook

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfastq/holdfast"
)

// Bounds of a signing key in bytes, from the Standard Webhooks specification.
const (
	minKey = 24
	maxKey = 64
)

func newSecrets(named map[string][]string) (map[string][]*standardwebhooks.Webhook, error) {
	secrets := make(map[string][]*standardwebhooks.Webhook, len(named))
	for name, keys := range named {
		if name == "" || len(keys) == 0 {
			return nil, fmt.Errorf("%w: webhook: the secret %.100q has no name or no key", holdfast.ErrInvalid, name)
		}
		for _, key := range keys {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
			if err != nil || len(raw) < minKey || len(raw) > maxKey { // err would show a piece of the key
				return nil, fmt.Errorf("%w: webhook: a key of the secret %.100q is not whsec_ and the base64 of %d to %d bytes",
					holdfast.ErrInvalid, name, minKey, maxKey)
			}
			signer, err := standardwebhooks.NewWebhookRaw(raw)
			if err != nil {
				return nil, fmt.Errorf("webhook: secret %.100q: %w", name, err)
			}
			secrets[name] = append(secrets[name], signer)
		}
	}
	return secrets, nil
}

// sign sets the headers that identify the delivery.
func sign(header http.Header, task holdfast.Task, body []byte, keys []*standardwebhooks.Webhook, now time.Time) error {
	id := task.IdempotencyKey
	if id == "" {
		return fmt.Errorf("%w: sign the request: the task has no idempotency key", holdfast.ErrInvalid)
	}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(AttemptHeader, strconv.Itoa(task.Attempt))
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signature, err := key.Sign(id, now, body)
		if err != nil {
			return fmt.Errorf("sign the request: %w", err)
		}
		signatures[i] = signature
	}
	if len(signatures) > 0 {
		header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	return nil
}
