package daemon

import (
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer/webhook"
)

// NewWebhook returns the HTTP delivery handler a configuration describes; producers
// use it to check payloads at the door.
func NewWebhook(c configs.Config, version string) (*webhook.Handler, error) {
	secrets := make(map[string]webhook.Secret)
	for name, hosts := range c.Webhook.SecretHosts {
		secrets[name] = webhook.Secret{Keys: c.Webhook.Secrets[name], Hosts: hosts}
	}
	return webhook.New(webhook.Options{
		Version: version, AllowCIDRs: c.Webhook.AllowCIDRs, Timeout: c.Webhook.Timeout, MaxRetryAfter: c.Webhook.MaxRetryAfter,
		MaxResponse: c.Webhook.MaxResponse, RetryStatuses: c.Webhook.RetryStatuses, Secrets: secrets,
	})
}
