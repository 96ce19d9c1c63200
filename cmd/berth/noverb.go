package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// otherWords are verbs of kubectl, podman, docker and compose that berth has under another name.
func otherWords() map[string]string {
	return map[string]string{
		"list": "ps", "ls": "ps", "pod": "ps", "pods": "ps", "container": "ps",
		"inspect": "describe", "kill": "stop", "pause": "stop",
		"up": "run", "play": "run", "kube": "run", "rollout": "restart", "explain": "fields",
		"uncordon": "drain --undo", "unpause": "start",
		"cordon": "drain", "check": "doctor", "lint": "validate", "config": "validate", "stats": "top", "log": "logs",
		"port": "describe", "info": "status", "image": "images", "prune": "images prune",
		"wait": "start --wait",
	}
}

// elsewhere says where that is done which berth does not do, by the verbs of others for it.
func elsewhere() map[string]string {
	const (
		builds = "berth builds and uploads no images: build them elsewhere, and push them to a registry, " +
			"or save them into the images directory"
		logins  = "the agent takes logins from imagePullSecrets, the machine's registry config, and credential providers"
		files   = "a pod goes when its manifest is deleted; berth stop POD stops it and keeps the manifest"
		compose = "write the services of a compose file as the containers of a pod: docs/migration.md, \"From compose, " +
			"by hand\", says how; then berth run FILE is up, and Ctrl-C down"
		changes = "what the manifest directory holds runs: put the file there, or change it there; berth diff FILE says " +
			"what that does"
		objects = "berth makes no such objects: they stand in the manifests of pods, and in files beside these"
	)
	return map[string]string{
		"build": builds, "push": builds, "tag": builds, "commit": builds, "load": builds, "save": builds,
		"login": logins, "logout": logins, "secret": objects, "volume": objects, "configmap": objects,
		"network": "networks are those of the CNI configuration, which \"berth doctor\" checks",
		"rm":      files, "delete": files, "down": files, "remove": files,
		"compose": compose, "docker-compose": compose,
		"apply": changes, "create": changes, "replace": changes, "edit": changes, "update": changes, "set": changes,
		"generate": "podman kube generate writes a manifest; the agent starts the pods of its manifests after a boot, and " +
			"needs no unit for them",
		"rename": "metadata.name in the manifest is the pod's name",
		"system": "berth images prune removes images that nothing uses, berth images says what images take, and berth " +
			"doctor looks at the machine",
		"search": "berth searches no registry: berth pull IMAGE takes the whole name of an image",
		"scale":  "each manifest is one pod: write another manifest, with another name",
	}
}

// noVerb refuses an argument of the program itself, which is a verb that does not exist. It names
// verbs that are spelled alike, those that other programs call so, or what to do instead.
func noVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if other := otherWords()[args[0]]; other != "" {
		return fmt.Errorf("%s: did you mean \"berth %s\"?", text, other)
	}
	if instead := elsewhere()[args[0]]; instead != "" {
		return fmt.Errorf("%s: %s", text, instead)
	}
	// One letter may be wrong, and two in a longer word.
	cmd.SuggestionsMinimumDistance = min(2, (len(args[0])+1)/3)
	if alike := cmd.SuggestionsFor(args[0]); len(alike) > 0 {
		return fmt.Errorf("%s: did you mean \"berth %s\"?", text, strings.Join(alike, "\" or \"berth "))
	}
	return errors.New(text)
}
