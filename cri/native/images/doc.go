// Package images is the CRI's image service on containerd's client API, without containerd's CRI
// plugin.
//
// Purpose: [Service] pulls, lists, pins and removes images in one containerd namespace, and
// measures the file system that they are on. Registries are reached as hosts.toml files say
// (mirrors, TLS), in the layout of containerd's certs.d.
//
// An image's ID is the digest of its config. Containerd knows images by name, so one ID may have
// several names: a tag, and the digest of its manifest. Both names are made by a pull. When a tag
// moves to another image, the digest's name keeps the old one.
//
// Indexes, manifests and configs are read into memory, so an image whose index, manifest or config
// is above 8 MiB is refused by a pull and not listed.
//
// Containerd's garbage collection keeps what a name leads to: the client labels the manifest with
// its config and layers, and the config with the snapshot of the unpacked layers.
//
// Truth owned: none that outlives the process; containerd has the images. In memory the service
// keeps what it has read of immutable content, and which pulls are under way.
//
// Concurrency: a [Service] is safe for concurrent use. Callers that pull the same image with the
// same login share one pull, which ends when the last of them gives up. [Service.Close] ends the
// pulls and waits for them.
package images
